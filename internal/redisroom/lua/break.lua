-- break.lua: ends the lease or ticket of an id by force, room.Break.
--
-- KEYS  H, R, Z, C of the room (room/1_state.lua)
-- ARGV  1 id, 2 reason, 3 the channel of all subscriptions, 4 the message for it
-- Returns a reply as of acquire/1_free.lua.
-- Inherits  the variables of room/1_state.lua; party, mark, expiry, drop, general and open
--           of room/2_record.lua; hand_over, save and reply of room/3_rule.lua
local id = ARGV[1]
local err = open(KEYS[1], KEYS[2], KEYS[3], KEYS[4], '')
if err then return err end
if uncontended and uncontended.id == id then general() end
local p = isrec and party(id)
local out = reply(GONE)
if p then
  local exp = expiry(p)
  drop(p)
  if p.state ~= 'w' and p.delay > 0 and ms + p.delay > closed then closed = ms + p.delay end
  out = reply(p.state == 'w' and LEFT or RELEASED)
  call('HSET', R, '~' .. id, ARGV[2])
  mark('~' .. id, math.max(exp, ms + SUSPICION))
  pcall_('PUBLISH', ARGV[3], ARGV[4]) -- without the right to publish its holder learns when it renews
end
hand_over()
save()
return out
