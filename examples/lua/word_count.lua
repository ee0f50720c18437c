-- Map-reduce: how often each word occurs in all values, counted on all cores.
--
-- count_words() returns a line for each word: the word, a tabulator, the number. The mapper runs in
-- states of its own, so it and the reducer are global functions, and share nothing but records.
-- Each state counts its words itself, and emits the counts in the end, or when they are many.

local WORDS_MAX = 100000
local counts, words = {}, 0

function emit_counts(emit)
  for word, count in pairs(counts) do
    emit(word, count)
  end
  counts, words = {}, 0
end

function map_words(key, value, emit)
  for word in value:lower():gmatch("%w+") do
    local count = counts[word]
    if not count then
      words = words + 1
    end
    counts[word] = (count or 0) + 1
  end
  if words > WORDS_MAX then
    emit_counts(emit)
  end
end

function sum_counts(word, counts)
  local sum = 0
  for _, count in ipairs(counts) do
    sum = sum + tonumber(count)
  end
  return sum
end

local function count_all()
  return tyrant.map_reduce{map = "map_words", finish = "emit_counts", reduce = "sum_counts"}
end

function count_words()
  local lines = {}
  for word, count in pairs(count_all()) do
    lines[#lines + 1] = string.format("%s\t%d", word, count)
  end
  table.sort(lines)
  return table.concat(lines, "\n")
end
