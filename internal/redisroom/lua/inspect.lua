-- inspect.lua: one consistent picture of a room, changing nothing.
--
-- KEYS  H, R, Z, C of the room (room/1_state.lua)
-- ARGV  1 "glance" to leave out the tickets
-- Returns {token, limit, closed ms, clock us, holder key's value or "",
--       remaining ms of it, then of each party its id, remaining ms and the
--       words of room/2_record.lua: first insiders, then tickets in their order}.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local ms = math.floor(now / 1000)
local hv = redis.pcall('GET', KEYS[1])
if type(hv) == 'table' then
  return redis.error_reply('LHFOREIGN the key holds a ' .. redis.call('TYPE', KEYS[1]).ok)
end
local left = hv and redis.call('PTTL', KEYS[1]) or 0
if left == 0 then hv = false end -- over, though its key stays until this millisecond is
local out = { 0, 0, 0, now, hv or '', left }
local s = redis.pcall('HGET', KEYS[2], '#')
if type(s) == 'table' then
  local last = redis.pcall('GET', KEYS[2])
  out[1] = type(last) == 'string' and tonumber(last) or 0
end
local held = hv and string.match(hv, '^[%w_.-]+ x .*} (%d+)$')
if held then out[1] = tonumber(held) end
local tok, lim, closed = string.match(type(s) == 'string' and s or '', '^(%d+) %d+ (%d+) (%d+) ')
if type(redis.pcall('ZSCORE', KEYS[3], '#')) ~= 'string' then closed = nil end
if tok then out[1] = tonumber(tok) end
if not closed then
  -- There is no whole record: no request enters before the mark in H ends.
  if hv == '*' then out[3] = math.max(0, left) end
  return out
end
out[2], closed = tonumber(lim), tonumber(closed)
local function add(id, expiry, words)
  out[#out + 1] = id
  out[#out + 1] = expiry - ms
  out[#out + 1] = words
end
local inside = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(0', 'WITHSCORES')
for i = 1, #inside, 2 do
  local id, expiry = string.sub(inside[i], 2), tonumber(inside[i + 1]) + 2 ^ 45
  local words = redis.call('HGET', KEYS[2], id)
  if words and hv == '*' and expiry > ms then
    add(id, expiry, words)
  else
    -- Expired and not purged yet: it may close the room.
    local delay = tonumber(string.match(words or '', '^%a %a %d %d+ %d+ %d+ (%d+)') or 0)
    if delay > 0 then closed = math.max(closed, expiry + delay) end
  end
end
out[3] = #out == 6 and math.max(0, closed - ms) or 0
if ARGV[1] then return out end
for _, m in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], 2 ^ 50, '+inf')) do
  local id = string.sub(m, 2)
  local expiry, words = tonumber(redis.call('ZSCORE', KEYS[3], 't' .. id) or 0), redis.call('HGET', KEYS[2], id)
  if words and expiry > ms then add(id, expiry, words) end
end
return out
