-- uncontended.lua: prolongs or ends an uncontended lease by one key.
--
-- The other scripts need four keys, of which often only one exists. A cluster refuses
-- such scripts while it moves the slot, but serves a command with one key from the node
-- that has the key. Each key of a script costs time, so an uncontended lock is released by
-- this script everywhere.
--
-- KEYS  1 H of the room (room/1_state.lua), 2 T, if the end is to be remembered
-- ARGV  1 "<id> ", 2 the life of T in ms if there is one, otherwise TTL in ms, or
--       none to end the lease; 3 the visit that prolongs it, if any
-- Returns 1 if the lease has ended, its token, as a string, if it is prolonged, or nil if
--       the lease is not there in the uncontended form.
local call, h, id = redis.pcall, KEYS[1], ARGV[1]
-- Most ids have this length; the rest of the value is not needed.
local v = #id == 27 and call('GETRANGE', h, '0', '26') or call('GET', h)
if v ~= id and (type(v) ~= 'string' or string.find(v, id, 1, true) ~= 1) then return false end
if not ARGV[2] then return call('DEL', h) end
if KEYS[2] then
  redis.call('PSETEX', KEYS[2], ARGV[2], '1') -- an error ends the script here
  return call('DEL', h)
end
local held = call('GET', h)
local token = string.match(string.sub(held, -18), '} (%d+)$')
if not token then return false end
call('PEXPIRE', h, ARGV[2], 'GT')
if ARGV[3] then
  -- include visit.lua
  call('SET', h, share(held, ARGV[3]), 'KEEPTTL')
end
return token
