-- inspect.lua: one consistent picture of a room, changing nothing.
--
-- KEYS  H, R, Z of the room (room.lua)
-- Returns {token, limit, closed ms, clock us, holder key's value or "",
--       remaining ms of it, then of each party its id, remaining ms and the
--       words of room.lua: first insiders, then tickets in their order}.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local ms = math.floor(now / 1000)
local hv = redis.pcall('GET', KEYS[1])
if type(hv) == 'table' then
  return redis.error_reply('LHFOREIGN the key holds a ' .. redis.call('TYPE', KEYS[1]).ok)
end
local out = { 0, 0, 0, now, hv or '', hv and redis.call('PTTL', KEYS[1]) or 0 }
local s = redis.pcall('HGET', KEYS[2], '#')
if type(s) ~= 'string' then
  local last = type(s) == 'table' and redis.pcall('GET', KEYS[2])
  out[1] = type(last) == 'string' and tonumber(last) or 0
  return out
end
local tok, lim, closed = string.match(s, '^(%d+) %d+ (%d+) (%d+) ')
out[1], out[2], closed = tonumber(tok), tonumber(lim), tonumber(closed)
local function add(id, expiry, words)
  out[#out + 1] = id
  out[#out + 1] = expiry - ms
  out[#out + 1] = words
end
local inside = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(0', 'WITHSCORES')
for i = 1, #inside, 2 do
  local id, expiry = string.sub(inside[i], 2), tonumber(inside[i + 1]) + 2 ^ 45
  local words = redis.call('HGET', KEYS[2], id)
  if hv == '*' and expiry > ms then
    add(id, expiry, words)
  else
    -- Expired and not purged yet: it may close the room.
    local delay = tonumber(string.match(words, '^%a %a %d %d+ %d+ %d+ (%d+)'))
    if delay > 0 then closed = math.max(closed, expiry + delay) end
  end
end
out[3] = #out == 6 and math.max(0, closed - ms) or 0
for _, m in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], 2 ^ 50, '+inf')) do
  local id = string.sub(m, 2)
  local expiry = tonumber(redis.call('ZSCORE', KEYS[3], 't' .. id))
  if expiry > ms then add(id, expiry, redis.call('HGET', KEYS[2], id)) end
end
return out
