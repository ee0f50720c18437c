-- A secondary index that is kept by the functions that write: users by their city.
--
-- put_user(id, "NAME,CITY") and remove_user(id) change the user and the index together; users_in(city)
-- returns the ids of its users, a line each. Clients that write "user:" records without these
-- functions bypass the index; mask their puts, or call rebuild() afterwards. Needs an ordered
-- database (.tcb).

local function city_of(user)
  return user:match(",(.*)$") or ""
end

local function index_key(city, id)
  return "city:" .. city .. ":" .. id
end

local function drop_entry(id)
  local user = tyrant.get("user:" .. id)
  if user then
    tyrant.remove(index_key(city_of(user), id))
  end
  return user ~= nil
end

function put_user(id, user)
  return tyrant.transaction(function()
    drop_entry(id)
    tyrant.put("user:" .. id, user)
    tyrant.put(index_key(city_of(user), id), "")
    return true
  end)
end

function remove_user(id)
  return tyrant.transaction(function()
    local was_there = drop_entry(id)
    tyrant.remove("user:" .. id)
    return was_there
  end)
end

function users_in(city)
  local prefix, ids = "city:" .. city .. ":", {}
  for _, key in ipairs(tyrant.keys(prefix)) do
    ids[#ids + 1] = key:sub(#prefix + 1)
  end
  return table.concat(ids, "\n")
end

function rebuild()
  for _, key in ipairs(tyrant.keys("city:")) do
    tyrant.remove(key)
  end
  for _, key in ipairs(tyrant.keys("user:")) do
    local id = key:sub(#"user:" + 1)
    tyrant.put(index_key(city_of(tyrant.get(key) or ""), id), "")
  end
  return true
end
