-- The functions that the cases with scripts call.

function empty(key, value)
  return ""
end

function increment(key, value)
  return _addint(key, 1)
end
