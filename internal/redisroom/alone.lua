-- alone.lua: prolongs or ends the lease of a lone holder by one key.
--
-- The other scripts need three keys, of which often only one exists, and a
-- cluster serves none of them while it moves their slot. A command with one key
-- it serves all the while, from the node that has the key.
--
-- KEYS  1 H of the room (room.lua)
-- ARGV  1 "<id> ", 2 TTL in ms, or none to end the lease
-- Returns 1 if the lease has ended, "0" if it is prolonged (its token stands in
--       another key), or nothing if it is not there in this form.
local v = redis.pcall('GET', KEYS[1])
if type(v) ~= 'string' or string.find(v, ARGV[1], 1, true) ~= 1 then return false end
if not ARGV[2] then return redis.call('DEL', KEYS[1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
return '0'
