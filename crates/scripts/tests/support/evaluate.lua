-- Evaluates the expression or the statements in the key, and shows the results as text.
local function show(v, depth)
  local t = type(v)
  if t == "string" then
    return '"' .. v:gsub("[^%w%p ]", function(c) return string.format("\\%d", c:byte()) end) .. '"'
  end
  if t == "number" then return string.format("%.14g", v) end
  if t ~= "table" then return t == "boolean" and tostring(v) or t end
  if depth > 3 then return "{...}" end
  local parts, shown = {}, {}
  for i, x in ipairs(v) do parts[i] = show(x, depth + 1) shown[i] = true end
  local names = {}
  for k in pairs(v) do if not shown[k] then names[#names + 1] = k end end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  for _, k in ipairs(names) do
    parts[#parts + 1] = tostring(k) .. "=" .. show(v[k], depth + 1)
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

local function shown(ok, ...)
  if not ok then
    return "error: " .. (type(...) == "string" and (...) or show((...), 0))
  end
  local parts = {}
  for i = 1, select("#", ...) do parts[i] = show((select(i, ...)), 0) end
  return table.concat(parts, " ")
end

function evaluate(key)
  local f, why = loadstring("return " .. key)
  if not f then f, why = loadstring(key) end
  if not f then return "syntax: " .. why end
  return shown(pcall(f))
end
