-- A leaderboard in a B+ tree: the best players without a sort, at any size.
--
-- score(player, points) adds points and returns the new total; top(number) returns the best
-- players, a line each: player, tabulator, points. Needs an ordered database (.tcb).
--
-- For each player there is a record "player:NAME" with the total, and an empty one in the order of
-- rank: the total counted down from a limit, then the name. Both change together.

local LIMIT = 999999999999

local function rank_key(points, player)
  return string.format("rank:%012d:%s", LIMIT - points, player)
end

function score(player, points)
  return tyrant.transaction(function()
    local old = tonumber(tyrant.get("player:" .. player) or nil)
    local new = math.min((old or 0) + math.floor(tonumber(points) or 0), LIMIT)
    if old then
      tyrant.remove(rank_key(old, player))
    end
    tyrant.put("player:" .. player, string.format("%d", new))
    tyrant.put(rank_key(new, player), "")
    return string.format("%d", new)
  end)
end

function top(number)
  local lines = {}
  for _, record in ipairs(tyrant.range{begin = "rank:", stop = "rank;", max = tonumber(number) or 10}) do
    local rest, player = record.key:match("^rank:(%d+):(.*)$")
    lines[#lines + 1] = string.format("%s\t%d", player, LIMIT - tonumber(rest))
  end
  return table.concat(lines, "\n")
end
