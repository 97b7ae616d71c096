-- release.lua: ends a lease, or leaves the queue, and hands the room on.
--
-- KEYS  H, R, Z of the room (room.lua); T, which is to remember the id
-- ARGV  1 "<id> "
--       2 "<keep> <forbid> <address or ->", durations in ms; absent or empty if
--         there is none of them
--       3 the life of T in ms, if there is one
-- Returns 1 for a lone holder's lease, otherwise a reply as of acquire.lua.
if not ARGV[2] or ARGV[2] == '' then
  local v = redis.pcall('GET', KEYS[1])
  if type(v) == 'string' and string.find(v, ARGV[1], 1, true) == 1 then
    local ended = redis.call('DEL', KEYS[1])
    if KEYS[4] then redis.call('SET', KEYS[4], '1', 'PX', ARGV[3]) end
    return ended
  end
end
