-- room/life.lua: how long the counter of a room lives.
--
-- KEYS, ARGV  none: life reads only its arguments
-- Included by  acquire/1_free.lua, acquire/2_common.lua and release/2_common.lua;
--              every general path has it once, before room/2_record.lua
--
-- life returns how long a counter lives, in ms: until an hour after its lease, and until an
-- hour after the server's clock has passed its token, since a lost counter is seeded with
-- that clock.
local function life(tok, ms, hold)
  return 3600000 + hold + math.max(0, math.floor(tok / 1000) - ms)
end
