-- Rate limiter: at most so many requests of a client in a second, with bursts (a token bucket).
--
-- allow(client, "RATE BURST") returns "yes" or "no". The state of a client expires by itself. Call
-- it with the record locked: the client is the key.

function allow(client, limits)
  local rate, burst = limits:match("^(%S+)%s+(%S+)$")
  rate, burst = tonumber(rate), tonumber(burst)
  if not rate or not burst or rate <= 0 then
    error("the value is RATE BURST, two numbers")
  end
  local key, now = "limit:" .. client, tyrant.time()
  local tokens, since = burst, now
  local state = tyrant.get(key)
  if state then
    tokens, since = state:match("^(%S+) (%S+)$")
    tokens = math.min(burst, tonumber(tokens) + (now - tonumber(since)) * rate)
  end
  local allowed = tokens >= 1
  if allowed then
    tokens = tokens - 1
  end
  -- A full bucket need not be remembered.
  tyrant.put(key, string.format("%.6f %.6f", tokens, now), {expires_in = burst / rate + 1})
  return allowed and "yes" or "no"
end
