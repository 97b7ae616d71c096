-- room/places.lua: the numbers of the places of a semaphore.
--
-- KEYS, ARGV  unused: the functions read only their arguments
-- Included by  acquire/2_common.lua, release/2_common.lua and room/2_record.lua
--
-- A room's scalars list the taken places: "1" for a taken place, "0" for a free one, in
-- order from place 0, up to the last that is taken. A holder's places are numbers between
-- commas, "-" without numbers. number and vacate return the taken places after an entry, with
-- the places of the new holder, and after an end.
local function number(taken, limit, weight)
  if limit == 0 or limit > 1024 then return taken, '-' end
  local places, at = {}, 0
  for i = 1, tonumber(weight) do
    at = string.find(taken, '0', at + 1) or math.max(at, #taken) + 1
    places[i] = string.format('%d', at - 1)
  end
  return string.rep('1', at) .. string.sub(taken, at + 1), table.concat(places, ',')
end

local function vacate(taken, places)
  local parts, from = {}, 1
  for n in string.gmatch(places, '%d+') do
    local at = tonumber(n)
    parts[#parts + 1], from = string.sub(taken, from, at), at + 2
  end
  parts[#parts + 1] = string.sub(taken, from)
  return string.match(table.concat(parts, '0'), '^(.*1)') or '0'
end
