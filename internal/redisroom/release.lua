-- release.lua, continued: the general path, room.Release.
local id = sub(ARGV[1], 1, -2)
local keep, forbid = match(ARGV[2] or '0 0', '^(%d+) (%d+)$')
keep, forbid = tonumber(keep), tonumber(forbid)

local function leave()
  if simple and simple.id == id then general() end
  local p = isrec and party(id)
  if not p then return (broken(id)) end
  drop(p)
  if p.state == 'w' then return reply(LEFT) end
  if keep > 0 and ms + keep > closed then closed = ms + keep end
  return reply(RELEASED)
end

local err = open(KEYS[1], KEYS[2], KEYS[3], id)
if err then return err end
local out = leave()
if forbid > 0 then
  general()
  mark('+' .. id, ms + forbid)
end
hand_over()
save()
return out
