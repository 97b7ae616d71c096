-- acquire/2_common.lua: settles the frequent cases of contended or shared locks, without
-- the functions of acquire/3_general.lua, whose definition alone takes longer: a try
-- is refused, a ticket is queued, the first sharer enters a free room, a further sharer an
-- open one, the first waiter is called if only it is in the way. Everything else goes on to
-- the next stage; until then there is no write.
--
-- KEYS, ARGV, returns  as of acquire/1_free.lua
-- Inherits  how
-- Leaves    how: "asked" if the server was asked whether it is full or a replica; the next
--           stage reads the room itself
repeat
  if how and how ~= 'general' then break end
  local call, fmt, match, sub, R, Z, C, G = redis.call, string.format, string.match, string.sub, KEYS[2], KEYS[3], KEYS[4], KEYS[6]
  local BAND, ANCHOR, QUEUE, BEHIND, SPARE = 2 ^ 45, '562949953421312', '1125899906842624', 2 ^ 46, 1800000
  local id, mode, weight, limit, wait, window, notify, meta =
    match(ARGV[1], '^(%S+) (%a) 0 (%d+) (%d+) (%d+) (%d+) 0 0 (%S+) %- (.*)$')
  local held = redis.pcall('GET', KEYS[1])
  if held and wait == '0' and mode == 'x' then
    how, held = 'asked', redis.pcall('GETEX', KEYS[1]) -- a GET that a replica refuses, and a write: a full server refuses no more after it
  elseif wait == '0' then
    local full = redis.pcall('SETRANGE', KEYS[1], '0', '') -- it changes nothing, but a full server refuses it
    if type(full) == 'table' then held = full end
    how = 'asked'
  end
  if type(held) == 'table' and not string.find(held.err, '^WRONGTYPE') then return held end
  if not id or limit ~= '0' and tonumber(weight) > tonumber(limit) then break end
  -- include places.lua
  local t = call('TIME')
  local now = t[1] * 1000000 + t[2]
  local ms = math.floor(now / 1000)
  if held == false and mode == 's' then
    -- Free, with no token of its own; a guarded request need not read the mark.
    if G and call('EXISTS', R, G, G) ~= 2 or not G and call('EXISTS', R) == 1 then break end
    local counted = redis.pcall('GET', C)
    counted = type(counted) == 'string' and tonumber(match(counted, '^%d+$') or '')
    if not counted or counted >= 2 ^ 53 then break end
    local tok = math.max(counted + 1, now)
    local exp, token, ends = ms + ARGV[2], fmt('%d', tok), math.floor(tok / 1000) + 3600000
    local rexp = ends + ARGV[2]
    local taken, places = number('0', tonumber(limit), weight)
    local full = redis.pcall('SET', C, token, 'PXAT', fmt('%d', ends))
    if full.err then return full end
    call('DEL', R, Z)
    call('HSET', R, id, fmt('c s 0 %s 0 %s 0 0 %s %s %s - %s', weight, window, places, token, notify, meta),
      '#', fmt('%s 0 %s 0 - 0 1 0 %s 1 - 0 %d %d %d 0 %s', token, limit, weight, exp, rexp, exp, taken))
    rexp = fmt('%d', rexp)
    call('PEXPIREAT', R, rexp)
    call('ZADD', Z, ANCHOR, '#', fmt('%d', exp - BAND), 'i' .. id)
    call('PEXPIREAT', Z, rexp)
    call('SET', KEYS[1], '*', 'PXAT', fmt('%d', exp + 1))
    return { 3, tonumber(token), 1, 0, 0, now, places ~= '-' and places or nil }
  end
  if type(held) ~= 'string' then break end
  if held ~= '*' then
    -- An uncontended lock: a try is refused, and the first waiter turns H into a record.
    local who, address, owner, about, token = match(held, '^([%w_.-]+) x [%d ]+ (%S+) (%S+) ({.*}) (%d+)$')
    local at = who and who ~= id and call('PEXPIRETIME', KEYS[1]) or 0
    if at <= ms then break end
    if wait ~= '0' then
      local exp, rexp = ms + wait, at + 3600000
      if owner ~= '-' or exp + SPARE >= rexp or call('EXISTS', R, Z) > 0 then break end
      local rank, place = fmt('%d', 1 + BEHIND), fmt('%d', 1 + BEHIND + QUEUE)
      local full = redis.pcall('HSET', R, who, fmt('c x 0 1 0 0 0 0 - %s %s - %s', token, address, about),
        id, fmt('w %s 0 %s 0 %s 0 0 %s 0 %s - %s', mode, weight, window, rank, notify, meta),
        '#', fmt('%s 1 %s 0 %s %d 1 1 0 %d - %s %d %d %d 0 0', token, limit, id, at, mode == 's' and 1 or 0, token, at, rexp,
          math.min(at, exp)))
      if type(full) == 'table' then return full end
      rexp = fmt('%d', rexp)
      call('PEXPIREAT', R, rexp)
      call('ZADD', Z, ANCHOR, '#', fmt('%d', at - BAND), 'i' .. who, fmt('%d', exp), 't' .. id, place, 'q' .. id)
      call('PEXPIREAT', Z, rexp)
      call('SET', KEYS[1], '*', 'PXAT', fmt('%d', at + 1))
    end
    local queued = wait == '0' and 0 or 1
    return { 1 + queued, 0, 0, queued, at - ms, now, who, at - ms, 'x', 1, '-', tonumber(token), 'c', about }
  end

  local known = redis.pcall('HMGET', R, '#', id, '~' .. id, '+' .. id)
  if not known[1] or known[2] or known[3] or known[4] then break end
  local tok, seq, lim, head, when, n, nx, used, shares, xtok, hexp, rexp, quiet, taken =
    match(known[1], '^(%d+) (%d+) (%d+) 0 (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) %- (%d+) (%d+) (%d+) (%d+) 0 (%d+)$')
  if not tok or n == '0' then break end
  if mode == 's' and shares ~= '0' and lim ~= limit then break end
  seq, when, used, shares, hexp, rexp, quiet = tonumber(seq), tonumber(when), tonumber(used), tonumber(shares), tonumber(hexp), tonumber(rexp), tonumber(quiet)

  local holder = call('ZRANGE', Z, '0', '0', 'WITHSCORES')
  local left = holder[2] and tonumber(holder[2]) < 0 and holder[2] + BAND - ms or 0 -- 0 if no place is taken
  if ms >= quiet then
    -- include ends.lua
  end
  if left <= 0 or ms >= quiet then break end -- to be purged
  local first = head ~= '-' -- somebody waits
  if first and ms + left < when then break end -- to be hinted

  local room = mode == 's' and nx == '0' and (limit == '0' or used + weight <= tonumber(limit))
  local called, ping, ears, ticket = 0, false, nil, nil
  if first and nx == '0' then
    ticket = call('HGET', R, head)
    local hmode, hweight, hwindow, htime, hnotify =
      match(ticket or '', '^w (%a) %d (%d+) %d+ (%d+) %d+ %d+ %d+ (%d+) (%S+)')
    if not hmode then break end -- to be dropped
    if hmode == 's' and (lim == '0' or used + hweight <= tonumber(lim) or tonumber(hweight) > tonumber(lim)) then break end
    if room and hnotify ~= '-' then
      -- Only the head is in the way: is it still there?
      local due = htime + hwindow - ms
      called = (call('ZSCORE', Z, 't' .. head) or 0) - ms
      if called <= 0 then break end
      if due > 0 then
        called = math.min(called, due)
      elseif called > tonumber(hwindow) then
        called, ping, ears = tonumber(hwindow), true, hnotify
      end
    end
  end

  if room and not first then
    local exp, counted = ms + ARGV[2], redis.pcall('GET', C)
    counted = type(counted) == 'string' and tonumber(match(counted, '^%d+$') or '')
    if exp + SPARE >= rexp or not counted or counted >= 2 ^ 53 or tok - counted > 0 then break end
    counted = math.max(counted + 1, now)
    local token = fmt('%d', counted)
    local full = redis.pcall('SET', C, token, 'PXAT', fmt('%d', math.floor(counted / 1000) + 3600000))
    if full.err then return full end
    if exp > hexp then
      hexp = exp
      call('SET', KEYS[1], '*', 'PXAT', fmt('%d', exp + 1))
    end
    local places
    taken, places = number(taken, tonumber(limit), weight)
    call('HSET', R, id, fmt('c s 0 %s 0 %s 0 0 %s %s %s - %s', weight, window, places, token, notify, meta),
      '#', fmt('%s %d %s 0 - %d %d 0 %d %d - %s %d %d %d 0 %s', token, seq, limit, when, n + 1, used + weight, shares + 1, xtok,
        hexp, rexp, math.min(quiet, exp), taken))
    call('ZADD', Z, fmt('%d', exp - BAND), 'i' .. id)
    return { 3, tonumber(token), 1, 0, 0, now, places ~= '-' and places or nil }
  end

  -- The holder that the reply shows.
  local shown = left
  if n ~= '1' then
    holder = call('ZREVRANGEBYSCORE', Z, '(0', '-inf', 'WITHSCORES', 'LIMIT', '0', '1')
    shown = holder[2] and holder[2] + BAND - ms
  end
  local who = sub(holder[1] or '', 2)
  local confirmed, side, part, places, token, about =
    match(shown and call('HGET', R, who) or '', '^(%a) (%a) %d (%d+) %d+ %d+ %d+ %d+ (%S+) (%d+) %S+ %S+ (.*)$')
  if not about then break end

  local state, position, next_ = 1, 0, left
  if wait ~= '0' then
    local exp = ms + wait
    if exp + SPARE >= rexp then break end
    seq = seq + 1
    local rank, place = fmt('%d', seq + BEHIND), fmt('%d', seq + BEHIND + QUEUE)
    if not first then head, when = id, ms + left end
    if ping then when = ms end
    if mode == 's' then lim, shares = limit, shares + 1 end
    quiet = math.min(quiet, exp, ping and ms + called or exp)
    local full = redis.pcall('ZADD', Z, fmt('%d', exp), 't' .. id, place, 'q' .. id)
    if type(full) == 'table' then return full end
    call('HSET', R, id, fmt('w %s 0 %s 0 %s 0 0 %s 0 %s - %s', mode, weight, window, rank, notify, meta),
      '#', fmt('%s %d %s 0 %s %d %s %s %d %d - %s %d %d %d 0 %s', tok, seq, lim, head, when, n, nx, used, shares, xtok, hexp, rexp, quiet, taken))
    state, position = 2, first and call('ZCOUNT', Z, QUEUE, place) or 1
    if first then next_ = position == 2 and called or 0 end
  elseif ping then
    call('HSET', R, '#', fmt('%s %d %s 0 %s %d %s %s %d %d - %s %d %d %d 0 %s', tok, seq, lim, head, ms, n, nx, used, shares, xtok,
      hexp, rexp, math.min(quiet, ms + called), taken))
  end
  if ping then
    call('ZADD', Z, fmt('%d', ms + called), 't' .. head)
    call('HSET', R, head, (string.gsub(ticket, '^(w %a %d %d+ )%d+( %d+ %d+ %d+ %d+ )%d+', fmt('%%1%d%%2%d', seq, ms))))
    redis.pcall('PUBLISH', ears, fmt('a %s 0', head))
  end
  return { state, 0, 0, position, next_, now, who, shown, side, tonumber(part), places, tonumber(token), confirmed, about }
until true
