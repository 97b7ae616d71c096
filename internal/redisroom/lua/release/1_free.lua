-- release/1_free.lua: ends a lease, or leaves the queue, and hands the room on. This
-- stage ends an uncontended lease.
--
-- KEYS  H, R, Z, C of the room (room/1_state.lua); T, which is to remember the id
-- ARGV  1 "<id> "
--       2 the life of T in ms, 0 or absent if there is none
--       3 "<keep> <forbid> <visit>", durations in ms; absent if all are empty
-- Returns 1 for an uncontended lease, otherwise a reply as of acquire/1_free.lua.
-- Leaves  held: the beginning of H's value; nil if the stage has not read it. This stage
--         leaves no write unless it has answered.
local held
if not ARGV[3] then
  local call, h, id = redis.call, KEYS[1], ARGV[1]
  held = #id == 27 and call('GETRANGE', h, '0', '26') or call('GET', h) -- as in uncontended.lua
  if held == id or held and held:sub(1, #id) == id then
    if KEYS[5] then call('PSETEX', KEYS[5], ARGV[2], '1') end
    return call('DEL', h)
  end
end
