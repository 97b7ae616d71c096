-- acquire_once.lua: stands before acquire.lua for a request with Once.
--
-- KEYS  H, R, Z of the room; T, which is there if the id has been released: "1"
--       if it was in the room, otherwise "0"; then the store's mark, if any, for
--       which T makes room
local spent = redis.call('GET', KEYS[4])
if spent then return { 0, 0, 0, tonumber(spent), 0, 0 } end
KEYS[4] = KEYS[5]
