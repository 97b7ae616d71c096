-- acquire.lua, continued: the commonest of the other cases in a straight line, since
-- only to define the functions of the general path takes longer. A try is refused, a
-- ticket is queued, the first who shares enters a free room or one more an open one,
-- all first come, first served. Whatever is not so goes on below; nothing
-- has been written until then.
repeat
  if type(held) == 'table' and not string.find(held.err, '^WRONGTYPE') then return held end
  if how == 'general' then
    held = redis.pcall('GET', KEYS[1])
  elseif how then
    break
  end
  local call, fmt, match, R, Z = redis.call, string.format, string.match, KEYS[2], KEYS[3]
  local BAND, ANCHOR, QUEUE, BEHIND, LIFE = 2 ^ 45, 2 ^ 49, 2 ^ 50, 2 ^ 46, 3600000
  local id, mode, weight, limit, wait, window, notify, meta =
    match(ARGV[1], '^(%S+) (%a) 0 (%d+) (%d+) (%d+) (%d+) 0 0 (%S+) %- (.*)$')
  if not id or limit ~= '0' and tonumber(weight) > tonumber(limit) then break end
  local t = call('TIME')
  local now = t[1] * 1000000 + t[2]
  local ms = math.floor(now / 1000)
  if held == false and mode == 's' then
    -- Free, and its last token is known.
    local tok = redis.pcall('GET', R)
    if type(tok) ~= 'string' then break end
    local token = fmt('%d', math.max(tok + 1, now))
    local exp = ms + ARGV[2]
    call('DEL', R, Z)
    call('HSET', R, id, fmt('c s 0 %s %s %s 0 0 %d %s %s - %s', weight, ARGV[2], window, 1 + BEHIND, token, notify, meta),
      '#', fmt('%s 0 %s 0 - 0 1 0 %s 1 - 0 %d %d', token, limit, weight, exp, exp + LIFE))
    call('ZADD', Z, ANCHOR, '#', exp - BAND, 'i' .. id)
    call('SET', KEYS[1], '*', 'PX', ARGV[2] + 1)
    call('PEXPIRE', R, ARGV[2] + LIFE)
    call('PEXPIRE', Z, ARGV[2] + LIFE)
    return { 3, tonumber(token), 1, 0, 0, now }
  end
  if type(held) ~= 'string' then break end
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
  local tok, seq, lim, head, when, n, nx, used, shares, xtok, hexp, rexp =
    match(known[1], '^(%d+) (%d+) (%d+) 0 (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) %- (%d+) (%d+) (%d+)$')
  if not tok or tok == '0' or n == '0' then break end
  if mode == 's' and shares ~= '0' and lim ~= limit then break end
  seq, when, used, shares, hexp, rexp = tonumber(seq), tonumber(when), tonumber(used), tonumber(shares), tonumber(hexp), tonumber(rexp)

  local holder = call('ZRANGE', Z, 0, 0, 'WITHSCORES')
  local left = holder[2] and holder[2] + BAND - ms or 0
  local first = call('ZRANGEBYSCORE', Z, QUEUE, '+inf', 'LIMIT', 0, 1)[1]
  if left <= 0 or call('ZRANGEBYSCORE', Z, 0, ms, 'LIMIT', 0, 1)[1] then break end -- to be purged
  if first and (first ~= 'q' .. head or ms + left < when) then break end -- to be hinted
  if not first and head ~= '-' then break end

  local room = mode == 's' and nx == '0' and (limit == '0' or used + weight <= tonumber(limit))
  local called, summon, ears = 0, nil, nil
  if first and nx == '0' then
    local ticket = call('HGET', R, head)
    local hmode, hweight, hwindow, htime, hnotify =
      match(ticket, '^w (%a) %d (%d+) %d+ (%d+) %d+ %d+ %d+ (%d+) (%S+)')
    if not hmode or hnotify ~= '-' and call('ZSCORE', Z, '!' .. hnotify) then break end -- to be dropped
    if hmode == 's' and (lim == '0' or used + hweight <= tonumber(lim) or tonumber(hweight) > tonumber(lim)) then break end
    if room and hnotify ~= '-' then
      -- Only the head is in the way: is it still there?
      local due = htime + hwindow - ms
      called = call('ZSCORE', Z, 't' .. head) - ms
      if due > 0 then
        called = math.min(called, due)
      elseif called > tonumber(hwindow) then
        called, ears = tonumber(hwindow), hnotify
        summon = string.gsub(ticket, '^(w %a %d %d+ %d+ %d+ %d+ %d+ %d+ )%d+', '%1' .. fmt('%d', ms))
      end
    end
  end

  if room and not first then
    local exp = ms + ARGV[2]
    if exp >= rexp then break end
    local token = fmt('%d', math.max(tok + 1, now))
    if exp > hexp then
      hexp = exp
      call('SET', KEYS[1], '*', 'PX', ARGV[2] + 1)
    end
    call('HSET', R, id, fmt('c s 0 %s %s %s 0 0 %d %s %s - %s', weight, ARGV[2], window, seq + 1 + BEHIND, token, notify, meta),
      '#', fmt('%s %d %s 0 - %d %d 0 %d %d - %s %d %d', token, seq, limit, when, n + 1, used + weight, shares + 1, xtok, hexp, rexp))
    call('ZADD', Z, exp - BAND, 'i' .. id)
    return { 3, tonumber(token), 1, 0, 0, now }
  end

  local state, position, next_ = 1, 0, left
  if wait ~= '0' then
    local exp = ms + wait
    if exp >= rexp then break end
    seq = seq + 1
    local rank = fmt('%d', seq + BEHIND)
    if not first then head, when = id, ms + left end
    if summon then when = ms end
    if mode == 's' then lim, shares = limit, shares + 1 end
    call('ZADD', Z, exp, 't' .. id, rank + QUEUE, 'q' .. id)
    call('HSET', R, id, fmt('w %s 0 %s %s %s 0 0 %s 0 %s - %s', mode, weight, ARGV[2], window, rank, notify, meta),
      '#', fmt('%s %d %s 0 %s %d %s %s %d %d - %s %d %d', tok, seq, lim, head, when, n, nx, used, shares, xtok, hexp, rexp))
    if notify ~= '-' then call('ZREM', Z, '!' .. notify) end
    state, position = 2, first and call('ZCOUNT', Z, QUEUE, rank + QUEUE) or 1
    if first then next_ = position == 2 and called or 0 end
  elseif summon then
    call('HSET', R, '#', fmt('%s %d %s 0 %s %d %s %s %d %d - %s %d %d', tok, seq, lim, head, ms, n, nx, used, shares, xtok, hexp, rexp))
  end
  if summon then
    call('ZADD', Z, ms + called, 't' .. head)
    call('HSET', R, head, summon)
    redis.pcall('PUBLISH', ears, fmt('a %s 0', head))
  end
  if n ~= '1' then
    holder = call('ZREVRANGEBYSCORE', Z, '(0', '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
    left = holder[2] + BAND - ms
  end
  local who = string.sub(holder[1], 2)
  local confirmed, side, part, token, about =
    match(call('HGET', R, who), '^(%a) (%a) %d (%d+) %d+ %d+ %d+ %d+ %d+ (%d+) %S+ %S+ (.*)$')
  return { state, 0, 0, position, next_, now, who, left, side, tonumber(part), tonumber(token), confirmed, about }
until true
