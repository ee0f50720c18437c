-- Message queues. A message is a record, so it survives a crash, and any client can look at it.
--
-- enqueue(queue, message) appends a message and returns its number; dequeue(queue) removes and
-- returns the oldest one, and fails if there is none; queue_size(queue) returns how many there are.
-- Call them with the record locked: the queue's name is the key.
--
-- The oldest message is also under the key "QUEUE:head" for clients that cannot call functions: a
-- memcached client reads it with `get`, and takes it away with `delete`. `advance(queue)` puts the
-- next one there; call it every second with --script-every, for the queues in QUEUES.

QUEUES = {"mail"}

local function bounds(queue)
  local first = tonumber(tyrant.get(queue .. ":first") or 1)
  local last = tonumber(tyrant.get(queue .. ":last") or 0)
  return first, last
end

local function message_key(queue, number)
  return string.format("%s:message:%012d", queue, number)
end

function enqueue(queue, message)
  return tyrant.transaction(function()
    local _, last = bounds(queue)
    tyrant.put(message_key(queue, last + 1), message)
    tyrant.put(queue .. ":last", last + 1)
    return last + 1
  end)
end

function dequeue(queue)
  return tyrant.transaction(function()
    local first, last = bounds(queue)
    if first > last then
      return nil
    end
    local key = message_key(queue, first)
    local message = tyrant.get(key)
    tyrant.remove(key)
    tyrant.put(queue .. ":first", first + 1)
    return message
  end)
end

function queue_size(queue)
  local first, last = bounds(queue)
  return last - first + 1
end

function advance(queue)
  local queues = queue ~= "" and {queue} or QUEUES
  for _, name in ipairs(queues) do
    local head = name .. ":head"
    _lock(name)
    if not tyrant.get(head) then
      local message = dequeue(name)
      if message then
        tyrant.put(head, message)
      end
    end
    _unlock(name)
  end
  return true
end
