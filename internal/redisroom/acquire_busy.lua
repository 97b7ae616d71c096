-- acquire.lua, continued: the commonest refusals in a straight line, since only
-- to define the functions of the general path takes longer. A mutex, first come, first
-- served, is asked for that is held by one holder. Whatever is not so goes on
-- below; nothing has been written until then.
repeat
  if type(held) == 'table' and not string.find(held.err, '^WRONGTYPE') then return held end
  if how or type(held) ~= 'string' then break end
  local call, fmt, match, R, Z = redis.call, string.format, string.match, KEYS[2], KEYS[3]
  local BAND, QUEUE, BEHIND = 2 ^ 45, 2 ^ 50, 2 ^ 46
  local id, wait, window, notify, meta = match(ARGV[1], '^(%S+) x 0 1 0 (%d+) (%d+) 0 0 (%S+) %- (.*)$')
  if not id then break end
  local t = call('TIME')
  local now = t[1] * 1000000 + t[2]
  local ms = math.floor(now / 1000)
  if held ~= '*' then
    -- A try, and the holder is alone.
    local who, about = match(held, '^([%w_.-]+) x [%d ]+ %S+ %S+ ({.*})$')
    local token = wait == '0' and who and who ~= id and redis.pcall('GET', R)
    local left = type(token) == 'string' and call('PTTL', KEYS[1]) or 0
    if left <= 0 then break end
    return { 1, 0, 0, 0, left, now, who, left, 'x', 1, tonumber(token), 'c', about }
  end

  local known = redis.pcall('HMGET', R, '#', id, '~' .. id)
  if not known[1] or known[2] or known[3] or call('ZSCORE', Z, '+' .. id) then break end
  local tok, seq, lim, head, when, rest, rexp =
    match(known[1], '^(%d+) (%d+) (%d+) 0 (%S+) (%d+) (1 1 %d+ %d+ %- %d+ %d+ (%d+))$')
  if not tok then break end

  local holder = call('ZRANGE', Z, 0, 0, 'WITHSCORES')
  local left = holder[2] and holder[2] + BAND - ms or 0
  local first = call('ZRANGEBYSCORE', Z, QUEUE, '+inf', 'LIMIT', 0, 1)[1]
  if left <= 0 or call('ZRANGEBYSCORE', Z, 0, ms, 'LIMIT', 0, 1)[1] then break end -- to be purged
  if first and (first ~= 'q' .. head or ms + left < tonumber(when)) then break end -- to be hinted
  if not first and head ~= '-' then break end

  local state, position, next_ = 1, 0, left
  if wait ~= '0' then
    local exp = ms + wait
    if exp >= tonumber(rexp) then break end
    seq = seq + 1
    local rank = fmt('%d', seq + BEHIND)
    if not first then head, when = id, ms + left end
    call('ZADD', Z, exp, 't' .. id, rank + QUEUE, 'q' .. id)
    call('HSET', R, id, 'w x 0 1 ' .. ARGV[2] .. ' ' .. window .. ' 0 0 ' .. rank .. ' 0 ' .. notify .. ' - ' .. meta,
      '#', tok .. ' ' .. seq .. ' ' .. lim .. ' 0 ' .. head .. ' ' .. when .. ' ' .. rest)
    if notify ~= '-' then call('ZREM', Z, '!' .. notify) end
    state, position = 2, first and call('ZCOUNT', Z, QUEUE, rank + QUEUE) or 1
    if first then next_ = 0 end
  end
  local who = string.sub(holder[1], 2)
  local confirmed, weight, token, about =
    match(call('HGET', R, who), '^(%a) x %d (%d+) %d+ %d+ %d+ %d+ %d+ (%d+) %S+ %S+ (.*)$')
  return { state, 0, 0, position, next_, now, who, left, 'x', tonumber(weight), tonumber(token), confirmed, about }
until true
