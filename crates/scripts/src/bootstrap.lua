-- Functions of Lua that are safe only in Lua itself: they call others, and must let the deadline of
-- a call pass. Functions that a script could replace are in locals here.
local settle, inspect, check, search, count_coroutine, join, gmatch, find = ...
local pcall, xpcall, error, type = pcall, xpcall, error, type
local create, resume, wrap = coroutine.create, coroutine.resume, coroutine.wrap
local sort, concat, insert, remove = table.sort, table.concat, table.insert, table.remove
local select = select
local loadstring = loadstring

-- A finalizer of a script's own would run without hooks.
if io then
  local meta = getmetatable(io.stdout)
  local methods = {}
  for name, method in pairs(meta) do
    if not name:find("^__") then methods[name] = method end
  end
  -- It was the metatable itself.
  meta.__index = methods
  meta.__metatable = false
end

-- Tables longer than this are joined and moved after a look at the clock: in C, no hook fires.
local LONG = 10000

-- Texts longer than this, in bytes, are searched with a look at the clock now and then.
local LONG_TEXT = 65536

local function finish(ok, ...)
  if ok then return true, ... end
  return false, settle((...))
end

function _G.pcall(...)
  return finish(pcall(...))
end

function _G.xpcall(f, handler)
  local handling = false
  return finish(xpcall(f, function(e)
    -- Lua would call a handler that fails for its own errors, within each other.
    if handling then return "error in error handling" end
    handling = true
    local late, shown = inspect(e)
    -- After the deadline, hooks are off while the handler runs.
    if late then return e end
    return handler(shown)
  end))
end

-- Each coroutine counts its own instructions, so short ones never come to a hook.
function coroutine.create(f)
  count_coroutine()
  return create(f)
end

function coroutine.resume(...)
  check()
  return finish(resume(...))
end

function coroutine.wrap(f)
  count_coroutine()
  local step = wrap(f)
  return function(...)
    check()
    return step(...)
  end
end

-- Searches for a single class, repeated or not, never go back, so those in C are safe and quicker.
local function is_linear(pattern)
  return find(pattern, "^%%[acdlpsuwxzACDLPSUWXZ]%+?$") or find(pattern, "^%[%^?[%w%s_,;:=/]+%]%+?$")
end

function string.gmatch(text, pattern)
  if type(text) == "string" and #text <= LONG_TEXT and type(pattern) == "string"
    and is_linear(pattern)
  then
    return gmatch(text, pattern)
  end
  local position = 0
  local function step(next, ...)
    if next then position = next end
    return ...
  end
  -- Both are strings or numbers, or this fails.
  text, pattern = text .. "", pattern .. ""
  return function()
    return step(search(text, pattern, position))
  end
end
string.gfind = string.gmatch

-- A comparison in Lua lets hooks fire between comparisons by functions in C.
function table.sort(list, less)
  local compare = less or function(a, b) return a < b end
  return sort(list, function(a, b) return compare(a, b) end)
end

function table.insert(list, ...)
  if type(list) == "table" and #list > LONG then check() end
  local position = ...
  if select("#", ...) == 2 and type(position) == "number" and position < 1 then
    error("bad argument #2 to 'insert' (position out of bounds)", 2)
  end
  return insert(list, ...)
end

function table.remove(list, ...)
  if type(list) == "table" and #list > LONG then check() end
  return remove(list, ...)
end

function table.concat(list, separator, ...)
  if type(list) == "table" and #list > LONG then
    if select("#", ...) == 0 then return join(list, separator) end
    check()
  end
  return concat(list, separator, ...)
end

function _G.load(reader, name)
  if type(reader) ~= "function" then
    error("bad argument #1 to 'load' (function expected, got " .. type(reader) .. ")", 2)
  end
  local parts = {}
  repeat
    local part = reader()
    if part ~= nil and type(part) ~= "string" then
      error("reader function must return a string", 2)
    end
    parts[#parts + 1] = part
  until part == nil or part == ""
  return loadstring(concat(parts), name or "=(load)")
end
