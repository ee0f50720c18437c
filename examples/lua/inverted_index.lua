-- Full-text search: which documents contain all of these words.
--
-- store(id, text) stores a document and indexes its words; forget(id) removes both; search(words)
-- returns the ids of the documents that contain all words, a line each.
--
-- The index has a record for each pair of a word and a document, so that writers of different
-- documents do not meet. Needs an ordered database (.tcb), where the pairs of a word lie together.

local RESULTS_MAX = 1000

local function words_of(text)
  local words = {}
  for word in text:lower():gmatch("%w+") do
    words[word] = true
  end
  return words
end

local function pair(word, id)
  return "word:" .. word .. ":" .. id
end

local function unindex(id)
  local text = tyrant.get("text:" .. id)
  for word in pairs(words_of(text or "")) do
    tyrant.remove(pair(word, id))
  end
  return text ~= nil
end

function store(id, text)
  return tyrant.transaction(function()
    unindex(id)
    for word in pairs(words_of(text)) do
      tyrant.put(pair(word, id), "")
    end
    tyrant.put("text:" .. id, text)
    return true
  end)
end

function forget(id)
  return tyrant.transaction(function()
    local was_there = unindex(id)
    tyrant.remove("text:" .. id)
    return was_there
  end)
end

function search(words)
  local found
  for word in pairs(words_of(words)) do
    local prefix, ids = "word:" .. word .. ":", {}
    for _, key in ipairs(tyrant.keys(prefix, RESULTS_MAX)) do
      ids[#ids + 1] = key:sub(#prefix + 1)
    end
    found = found and _isect(found, ids) or ids
  end
  found = found or {}
  table.sort(found)
  return table.concat(found, "\n")
end
