-- acquire_once.lua: stands before acquire.lua for a request with Once.
--
-- KEYS  those of acquire.lua; last T, which is there if the id has been
--       released: "1" if it was in the room, otherwise "0"
local T = table.remove(KEYS)
local spent = redis.call('GET', T)
if spent then return { 0, 0, 0, tonumber(spent), 0, 0 } end
