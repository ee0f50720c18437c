-- What scripts of Redis share cannot be changed by them: the globals and the libraries. A script
-- has empty tables in place of them, which read from them and refuse changes. Functions that go
-- past the metatables are replaced.
local globals, raw_xpcall, handle = ...
local setmetatable, getmetatable, rawget, rawset = setmetatable, getmetatable, rawget, rawset
local error, type, next, pcall, setfenv = error, type, next, pcall, setfenv
local loadstring, load = loadstring, load
local insert = table.insert

local READ_ONLY = "Attempt to modify a readonly table"

-- The tables behind the empty ones.
local behind = {}

local function refuse()
  error(READ_ONLY, 2)
end

local function protect(original)
  local front = setmetatable({}, { __index = original, __newindex = refuse, __metatable = false })
  behind[front] = original
  return front
end

-- Redis's pcall catches the text of an error that is a table.
local function flatten(ok, caught, ...)
  if not ok and type(caught) == "table" and type(caught.err) == "string" then
    return false, caught.err
  end
  return ok, caught, ...
end

function globals.pcall(...)
  return flatten(pcall(...))
end

function globals.rawget(table, key)
  return rawget(behind[table] or table, key)
end

function globals.rawset(table, ...)
  if behind[table] then error(READ_ONLY, 0) end
  return rawset(table, ...)
end

function globals.setmetatable(table, ...)
  if behind[table] then error(READ_ONLY, 0) end
  return setmetatable(table, ...)
end

function globals.table.insert(list, ...)
  if behind[list] then error(READ_ONLY, 0) end
  return insert(list, ...)
end

local environment

local function within(f, ...)
  if f then setfenv(f, environment) end
  return f, ...
end

function globals.loadstring(...)
  return within(loadstring(...))
end

function globals.load(...)
  return within(load(...))
end

for _, name in next, { "getfenv", "setfenv", "print", "debug", "newproxy" } do
  globals[name] = nil
end

local redis = globals.redis
for name, value in next, globals do
  if type(value) == "table" and value ~= globals then globals[name] = protect(value) end
end
setmetatable(globals, {
  __index = function(_, name)
    if type(name) ~= "string" and type(name) ~= "number" then
      error("Second argument to luaProtectedTableError must be a string or number", 2)
    end
    error("Script attempted to access nonexistent global variable '" .. name .. "'", 2)
  end,
})
environment = protect(globals)
rawset(globals, "_G", environment)

local of_texts = getmetatable("")
of_texts.__index = globals.string
of_texts.__metatable = protect({ __index = globals.string })

-- The reply is only the first result.
return environment, redis, function(f)
  return raw_xpcall(function() return (f()) end, handle)
end
