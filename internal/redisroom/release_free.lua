-- release.lua: ends a lease, or leaves the queue, and hands the room on.
--
-- KEYS  H, R, Z of the room (room.lua); T, which is to remember the id
-- ARGV  1 "<id> "
--       2 "<keep> <forbid> <address or ->", durations in ms; absent or empty if
--         there is none of them
--       3 the life of T in ms, if there is one
-- Returns 1 for a lone holder's lease, otherwise a reply as of acquire.lua.
local held
if not ARGV[2] or ARGV[2] == '' then
  local call, h, id = redis.call, KEYS[1], ARGV[1]
  held = call('GET', h)
  if held and held:sub(1, #id) == id then
    if KEYS[4] then call('SET', KEYS[4], '1', 'PX', ARGV[3]) end
    return call('DEL', h)
  end
end
