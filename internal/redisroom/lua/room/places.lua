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
    at = string.find(taken, '0', at + 1) or #taken + 1
    taken = string.sub(taken, 1, at - 1) .. '1' .. string.sub(taken, at + 1)
    places[i] = string.format('%d', at - 1)
  end
  return taken, table.concat(places, ',')
end

local function vacate(taken, places)
  for n in string.gmatch(places, '%d+') do
    local at = tonumber(n)
    taken = string.sub(taken, 1, at) .. '0' .. string.sub(taken, at + 2)
  end
  return string.match(taken, '^(.*1)') or '0'
end
