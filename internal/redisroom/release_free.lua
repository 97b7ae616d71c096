-- release.lua: ends a lease, or leaves the queue, and hands the room on.
--
-- KEYS  H, R, Z of the room (room.lua)
-- ARGV  1 "<id> "
--       2 "<keep> <forbid>" in ms, present if either is above 0
-- Returns 1 for a lone holder's lease, otherwise a reply as of acquire.lua.
if not ARGV[2] then
  local v = redis.pcall('GET', KEYS[1])
  if type(v) == 'string' and string.find(v, ARGV[1], 1, true) == 1 then
    return redis.call('DEL', KEYS[1])
  end
end
