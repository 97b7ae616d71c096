-- renew.lua: prolongs leases, confirms grants and keeps tickets alive.
--
-- KEYS  H, R, Z of each room (room.lua)
-- ARGV  four for each: "<id> ", TTL in ms, life of a ticket in ms, notify
--       address or -
-- Returns for each the tail of the holder key's value, which ends in the token
--       less 1, if it was the lone holder and is prolonged, otherwise a reply
--       as of acquire.lua; with GONE of a broken lease the reason stands at 7.
local out, rest = {}, {}
for i = 1, #KEYS / 3 do
  local h, a = KEYS[3 * i - 2], 4 * i - 3
  local v = redis.pcall('GET', h)
  if type(v) == 'string' and string.find(v, ARGV[a], 1, true) == 1 then
    redis.call('PEXPIRE', h, ARGV[a + 1], 'GT')
    out[i] = string.sub(v, -17)
  else
    rest[#rest + 1] = i
  end
end
if #rest == 0 then return out end
