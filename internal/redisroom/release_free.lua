-- release.lua: ends a lease, or leaves the queue, and hands the room on.
--
-- KEYS  H, R, Z of the room (room.lua); T, which is to remember the id
-- ARGV  1 "<id> "
--       2 "<keep> <forbid> <address or ->", durations in ms; absent or empty if
--         there is none of them
--       3 the life of T in ms, if there is one
-- Returns 1 for a lone holder's lease, otherwise a reply as of acquire.lua.
local id_ = ARGV[1]
local held = (not ARGV[2] or ARGV[2] == '') and redis.pcall('GET', KEYS[1])
if type(held) == 'string' and string.sub(held, 1, #id_) == id_ then
  if KEYS[4] then redis.call('SET', KEYS[4], '1', 'PX', ARGV[3]) end
  return redis.call('DEL', KEYS[1])
end
