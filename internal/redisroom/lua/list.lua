-- list.lua: whether a room is occupied, waited for, or closed for a while.
--
-- KEYS  H, R, Z, C of the room (room/1_state.lua)
-- ARGV  1 "1" if another library's lock counts
-- Returns 1 or 0.
local hv = redis.pcall('GET', KEYS[1])
if type(hv) == 'table' then return 0 end
if hv and hv ~= '*' then
  if string.find(hv, '^[%w_.-]+ x [%d ]+ %S+ %S+ {.*} %d+$') then return 1 end
  if ARGV[1] == '1' and redis.call('PTTL', KEYS[1]) > 0 then return 1 end
end
-- Without a record the contents of Z are meaningless.
local scalars = redis.pcall('HGET', KEYS[2], '#')
if type(scalars) ~= 'string' or scalars == '' or redis.call('TYPE', KEYS[3]).ok ~= 'zset' then
  return hv == '*' and redis.call('PTTL', KEYS[1]) > 0 and 1 or 0 -- no client enters before the mark ends
end
local t = redis.call('TIME')
local ms = math.floor((t[1] * 1000000 + t[2]) / 1000)
local closed = tonumber(string.match(scalars, '^%d+ %d+ %d+ (%d+) ') or 0)
if closed > ms and redis.call('ZSCORE', KEYS[3], '#') then return 1 end
if hv == '*' and redis.call('ZCOUNT', KEYS[3], '(' .. string.format('%d', ms - 2 ^ 45), '(0') > 0 then return 1 end
-- A lease that has expired may close the room for a while.
for _, m in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(0')) do
  local delay = tonumber(string.match(redis.call('HGET', KEYS[2], string.sub(m, 2)) or '', '^%a %a %d %d+ %d+ %d+ (%d+)') or 0)
  if delay > 0 and tonumber(redis.call('ZSCORE', KEYS[3], m)) + 2 ^ 45 + delay > ms then return 1 end
end
local from, some = 0, nil
repeat
  some = redis.call('ZRANGEBYSCORE', KEYS[3], 2 ^ 50, '+inf', 'LIMIT', from, 512)
  for _, m in ipairs(some) do
    if tonumber(redis.call('ZSCORE', KEYS[3], 't' .. string.sub(m, 2)) or 0) > ms then return 1 end
  end
  from = from + 512
until #some < 512
return 0
