-- Sessions that expire when they are not used.
--
-- login(user, seconds) returns a new session's id; user_of(id, seconds) returns its user, and keeps
-- the session for so many seconds from now on, and fails if there is none; logout(id) ends it.

local SECONDS = 1800

local function random_id()
  local digits = {}
  for part = 1, 4 do
    digits[part] = string.format("%08x", math.floor(tyrant.random() * 2 ^ 32))
  end
  return table.concat(digits)
end

function login(user, seconds)
  local lasting = {expires_in = tonumber(seconds) or SECONDS}
  local id
  repeat
    id = random_id()
  until tyrant.put_new("session:" .. id, user, lasting)
  return id
end

function user_of(id, seconds)
  local key = "session:" .. id
  local user, version = tyrant.get(key)
  if not user then
    return nil
  end
  -- Not if it was ended meanwhile.
  tyrant.compare_and_swap(key, user, version, {expires_in = tonumber(seconds) or SECONDS})
  return user
end

function logout(id)
  return tyrant.remove("session:" .. id)
end
