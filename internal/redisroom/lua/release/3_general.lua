-- release/3_general.lua: settles every release, by the rule: room.Release.
--
-- KEYS, ARGV, returns  as of release/1_free.lua
-- Inherits  room/1_state.lua, room/2_record.lua and room/3_rule.lua, with open, save
--           and reply
local id = sub(ARGV[1], 1, -2)
local keep, forbid, visit = match(ARGV[3] or '', '^(%d+) (%d+) (%S*)$')
if not keep then keep, forbid, visit = 0, 0, '' end
keep, forbid = tonumber(keep), tonumber(forbid)

local function leave()
  local p = uncontended and uncontended.id == id and uncontended or isrec and party(id)
  if not p then return (broken(id)) end
  if visit ~= '' and not below(visit_of(p.meta), visit) then return reply(BUSY) end
  general()
  drop(p)
  if p.state == 'w' then return reply(LEFT) end
  if keep > 0 and ms + keep > closed then closed = ms + keep end
  return reply(RELEASED)
end

-- remember_id is the part of room's forbid that concerns requests with SingleUseID.
local was = KEYS[5] and pcall_('GET', KEYS[5])
local function remember_id(out)
  if out[1] ~= GONE then
    was = '1'
  elseif was == '1' then
    out[4] = 1
  end
  call('PSETEX', KEYS[5], ARGV[2], was == '1' and '1' or '0')
end

local err = open(KEYS[1], KEYS[2], KEYS[3], KEYS[4], id)
if err then return err end
local out = leave()
if out[1] == BUSY then
  caller = '' -- this visit gets no answer about it, so the requester of this id gets a hint
  hand_over()
  save()
  return out
end
if KEYS[5] then remember_id(out) end
if forbid > 0 then
  general()
  call('HSET', R, '+' .. id, '')
  mark('+' .. id, ms + forbid)
end
hand_over()
save()
return out
