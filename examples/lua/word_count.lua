-- Map-reduce: how often each word occurs in all values, counted on all cores.
--
-- count_words() returns a line for each word: the word, a tabulator, the number. The mapper runs in
-- states of its own, so it and the reducer are global functions, and share nothing but records.

function map_words(key, value, emit)
  local counts = {}
  for word in value:lower():gmatch("%w+") do
    counts[word] = (counts[word] or 0) + 1
  end
  for word, count in pairs(counts) do
    emit(word, count)
  end
  return true
end

function sum_counts(word, counts)
  local sum = 0
  for _, count in ipairs(counts) do
    sum = sum + tonumber(count)
  end
  return sum
end

function count_words()
  local lines = {}
  for word, count in pairs(tyrant.map_reduce{map = "map_words", reduce = "sum_counts"}) do
    lines[#lines + 1] = string.format("%s\t%d", word, count)
  end
  table.sort(lines)
  return table.concat(lines, "\n")
end
