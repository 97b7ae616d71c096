-- acquire/0_once.lua: refuses an id that has been released, before acquire/1_free.lua.
-- Only requests with SingleUseID have this stage.
--
-- KEYS     H, R, Z, C of the room (room/1_state.lua); T, which is there if the id has
--          been released: "1" if it was in the room, otherwise "0"; then M and G, if any
-- ARGV     as of acquire/1_free.lua
-- Returns  {GONE, 0, 0, "it was in the room" as 0 or 1, 0, 0}, or goes on
-- Leaves   KEYS as acquire/1_free.lua reads them: M and G move to the place of T
local spent = redis.call('GET', KEYS[5])
if spent then return { 0, 0, 0, spent == '1' and 1 or 0, 0, 0 } end
KEYS[5], KEYS[6] = KEYS[6], KEYS[7]
