-- inspect.lua: one consistent picture of a room, changing nothing.
--
-- KEYS  H, R, Z of the room (room.lua)
-- Returns {token, limit, closed ms, clock µs, holder key's value or "",
--       remaining ms of it, [id, expiry ms or rank, party] flattened: first
--       insiders, then tickets in order (with their expiry)}.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local ms = math.floor(now / 1000)
local hv = redis.call('GET', KEYS[1])
local out = { 0, 0, 0, now, hv or '', hv and redis.call('PTTL', KEYS[1]) or 0 }
local s = redis.pcall('HGET', KEYS[2], '#')
if type(s) ~= 'string' then
  out[1] = tonumber(redis.pcall('GET', KEYS[2]) or 0) or 0
  return out
end
local tok, lim, closed = string.match(s, '^(%d+) %d+ (%d+) (%d+) ')
out[1], out[2], out[3] = tonumber(tok), tonumber(lim), tonumber(closed) - ms
local function add(id, expiry)
  out[#out + 1] = id
  out[#out + 1] = expiry - ms
  out[#out + 1] = redis.call('HGET', KEYS[2], id)
end
local inside = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(0', 'WITHSCORES')
for i = 1, #inside, 2 do
  local expiry = tonumber(inside[i + 1]) + 2 ^ 45
  if hv == '*' and expiry > ms then add(string.sub(inside[i], 2), expiry) end
end
for _, m in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], 2 ^ 50, '+inf')) do
  local id = string.sub(m, 2)
  local expiry = tonumber(redis.call('ZSCORE', KEYS[3], 't' .. id))
  if expiry > ms then add(id, expiry) end
end
return out
