-- list.lua: whether a room is occupied or waited for.
--
-- KEYS  H, R, Z of the room (room.lua)
-- ARGV  1 "1" if somebody else's lock counts
-- Returns 1 or 0.
local hv = redis.pcall('GET', KEYS[1])
if type(hv) == 'table' then return 0 end
if hv and hv ~= '*' then
  if string.find(hv, '^[%w_.-]+ x [%d ]+ %S+ %S+ {.*}$') then return 1 end
  if ARGV[1] == '1' and redis.call('PTTL', KEYS[1]) >= 0 then return 1 end
end
local t = redis.call('TIME')
local ms = math.floor((t[1] * 1000000 + t[2]) / 1000)
if hv == '*' and redis.call('ZCOUNT', KEYS[3], '(' .. string.format('%d', ms - 2 ^ 45), '(0') > 0 then return 1 end
for _, m in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], 2 ^ 50, '+inf', 'LIMIT', 0, 64)) do
  if tonumber(redis.call('ZSCORE', KEYS[3], 't' .. string.sub(m, 2))) > ms then return 1 end
end
return 0
