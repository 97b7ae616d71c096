-- renew.lua, continued: the commonest cases of rooms that are described by a
-- record, in a straight line, since only to define the functions of the general path
-- takes longer. Somebody inside stays, or a ticket behind the head of a mutex
-- that is held by one holder is kept alive. Whatever is not so goes on below;
-- nothing has been written for it until then.
local call, match, QUEUE = redis.call, string.match, 2 ^ 50
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
local ms = math.floor(now / 1000)
local others = {}
for _, i in ipairs(rest) do
  local H, R, Z, a = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], 4 * i - 3
  local id, ttl, wait, notify = string.sub(ARGV[a], 1, -2), ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
  local record = redis.pcall('GET', H) == '*' and redis.pcall('HMGET', R, '#', id)
  if record and record[1] and record[2] then
    local first, n, nx, middle, hexp, rexp =
      match(record[1], '^(%d+ %d+ %d+ %d+ %S+ %d+ )(%d+) (%d+)( .*) (%d+) (%d+)$')
    local state, tail, mode, rank, token, address =
      match(record[2], '^(%a)( (%a) %d %d+ %d+ %d+ 0 %d+ (%d+) (%d+) (%S+) .*)$')
    local left = (call('ZRANGE', Z, 0, 0, 'WITHSCORES')[2] or -math.huge) + 2 ^ 45 - ms
    local purged = left > 0 and not call('ZRANGEBYSCORE', Z, 0, ms, 'LIMIT', 0, 1)[1]
    local exp = ms + (state == 'w' and wait or ttl)
    if not state or not purged or exp >= tonumber(rexp) then -- not here
    elseif state ~= 'w' then
      call('ZADD', Z, 'GT', exp - 2 ^ 45, 'i' .. id)
      if exp > tonumber(hexp) then
        call('SET', H, '*', 'PX', ttl + 1)
        hexp = exp
      end
      call('HSET', R, id, 'c' .. tail, '#', first .. n .. ' ' .. nx .. middle .. ' ' .. hexp .. ' ' .. rexp)
      out[i] = { 3, tonumber(token), mode == 'x' and tonumber(n) or 1, 0, 0, now }
    elseif n == '1' and nx == '1' and address == notify and match(middle, '^ %d+ %d+ %- ') then
      local head, when = match(first, '^%d+ %d+ %d+ 0 (%S+) (%d+) $')
      local queue = head and call('ZRANGEBYSCORE', Z, QUEUE, '+inf', 'LIMIT', 0, 1)
      if head and head ~= id and queue[1] == 'q' .. head and ms + left >= tonumber(when) then
        call('ZADD', Z, exp, 't' .. id)
        if notify ~= '-' then call('ZREM', Z, '!' .. notify) end
        out[i] = { 2, 0, 0, call('ZCOUNT', Z, QUEUE, rank + QUEUE), 0, now }
      end
    end
  end
  if not out[i] then others[#others + 1] = i end
end
if #others == 0 then return out end
rest = others
