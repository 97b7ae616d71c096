-- alone.lua: prolongs or ends the lease of a lone holder by one key.
--
-- The other scripts need three keys, of which often only one exists, and a
-- cluster serves none of them while it moves their slot. A command with one key
-- it serves all the while, from the node that has the key. And every key that a
-- script is given has its price, so this is how a lock is freed that nobody else
-- wanted.
--
-- KEYS  1 H of the room (room/1_state.lua), 2 T, if the end is to be remembered
-- ARGV  1 "<id> ", 2 the life of T in ms if there is one, otherwise TTL in ms, or
--       none to end the lease
-- Returns 1 if the lease has ended, "0" if it is prolonged (its token stands in
--       another key), or nothing if it is not there in this form.
local call, h, id = redis.pcall, KEYS[1], ARGV[1]
-- Most ids are of this length, and what follows them is not of interest.
local v = #id == 27 and call('GETRANGE', h, '0', '26') or call('GET', h)
if v ~= id and (type(v) ~= 'string' or string.find(v, id, 1, true) ~= 1) then return false end
if not ARGV[2] then return call('DEL', h) end
if KEYS[2] then
  redis.call('PSETEX', KEYS[2], ARGV[2], '1') -- an error ends the script here
  return call('DEL', h)
end
call('PEXPIRE', h, ARGV[2], 'GT')
return '0'
