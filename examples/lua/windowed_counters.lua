-- Counters by time: how often something happened in each minute, for as long as one wants to know.
--
-- hit(name, seconds) counts one event now, in a window of so many seconds (60 if not given), and
-- returns the count of that window. count(name, windows) returns the sum of the last windows of
-- 60 seconds. Both are called with the name's record locked, so that no event is lost.

local KEPT_SECONDS = 24 * 3600

local function window(seconds)
  return math.floor(tyrant.time() / seconds)
end

local function key_of(name, seconds, number)
  return string.format("hits:%s:%d:%d", name, seconds, number)
end

function hit(name, seconds)
  seconds = tonumber(seconds) or 60
  local key = key_of(name, seconds, window(seconds))
  local sum = tonumber(tyrant.get(key) or 0) + 1
  tyrant.put(key, sum, {expires_in = KEPT_SECONDS})
  return sum
end

function count(name, windows)
  windows = math.min(tonumber(windows) or 1, 1000)
  local last, sum = window(60), 0
  for number = last - windows + 1, last do
    sum = sum + tonumber(tyrant.get(key_of(name, 60, number)) or 0)
  end
  return sum
end
