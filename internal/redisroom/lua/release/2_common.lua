-- release/2_common.lua: ends a lease in a room that is described by a record, without
-- the functions of release/3_general.lua, whose definition alone takes as long: another
-- party stays inside; or the next waiter gets the room, and with a sharer the sharers
-- behind it; or no party is left. Everything else goes on to the next stage; until then
-- there is no write.
--
-- KEYS, ARGV, returns  as of release/1_free.lua
-- Inherits  held
-- Leaves    nothing: the next stage reads the room itself
repeat
  if held ~= '*' then break end
  local call, fmt, match, sub, R, Z, C = redis.call, string.format, string.match, string.sub, KEYS[2], KEYS[3], KEYS[4]
  local BAND, QUEUE, BATCH = 2 ^ 45, '1125899906842624', 64
  local id = sub(ARGV[1], 1, -2)
  local mine = redis.pcall('HMGET', R, '#', id)
  local mode, weight, places = match(mine[2] or '', '^[uc] (%a) %d (%d+) %d+ %d+ %d+ %d+ (%S+) ')
  local tok, seq, lim, head, when, n, used, shares, xtok, hexp, rexp, quiet, taken =
    match(mode and mine[1] or '', '^(%d+) (%d+) (%d+) 0 (%S+) (%d+) (%d+) %d+ (%d+) (%d+) %- (%d+) (%d+) (%d+) (%d+) 0 (%d+)$')
  if not tok then break end
  -- include places.lua
  taken = vacate(taken, places)
  local limit = lim == '0' and math.huge or tonumber(lim)
  n, used, shares, hexp, quiet = n - 1, tonumber(used), tonumber(shares), tonumber(hexp), tonumber(quiet)
  if mode == 's' then used, shares = used - weight, shares - 1 end
  if n == 0 then used, taken = 0, '0' end -- as discount of room/2_record.lua

  local t = call('TIME')
  local now = t[1] * 1000000 + t[2]
  local ms = math.floor(now / 1000)
  if ms >= quiet then
    -- include ends.lua
    if ms >= quiet then break end -- to be purged
  end
  local soonest = math.huge
  if n > 0 then
    local inside = call('ZRANGE', Z, '0', '1', 'WITHSCORES')
    soonest = (inside[inside[1] == 'i' .. id and 4 or 2] or 0) + BAND
    if soonest > hexp then break end -- Z has lost a holder
  end
  local queue = call('ZRANGEBYSCORE', Z, QUEUE, '+inf', 'LIMIT', '0', '2')
  if queue[1] ~= (head ~= '-' and 'q' .. head or nil) then break end -- to be hinted
  local tickets = queue[1] and call('HMGET', R, head, sub(queue[2] or '', 2)) or {}
  if queue[2] and sub(tickets[1] or '', 1, 3) == 'w s' then
    queue = call('ZRANGEBYSCORE', Z, QUEUE, '+inf', 'LIMIT', '0', fmt('%d', BATCH))
  end

  -- The waiters that enter, and the first that does not.
  local enter, gone, came, messages, nx, stays, address = {}, { 'i' .. id }, {}, {}, 0, nil, nil
  local counted = redis.pcall('GET', C)
  counted = type(counted) == 'string' and tonumber(match(counted, '^%d+$') or '')
  if not counted or counted >= 2 ^ 53 or tok - counted > 0 then break end
  local usual = true
  for i, member in ipairs(queue) do
    local next_ = sub(member, 2)
    local ticket = tickets[i]
    if i > 2 then ticket = call('HGET', R, next_) end
    local terms, side, policy, part, further, window, plain, notify, about, ident =
      match(ticket or '', '^w( (%a) (%d) (%d+) )%d+( (%d+) (%d+ %d+) )%d+ %d+ (%S+)( (%S+) .*)$')
    usual = side and (nx == 1 or policy ~= '1' and notify ~= '-' and (side == 'x' or tonumber(part) <= limit))
    if not usual then break end
    if nx == 1 or side == 'x' and n > 0 or side == 's' and used + part > limit then
      stays, address = next_, notify
      break
    end
    local exp = ms + window
    usual = plain == '0 0' and ident == '-' and exp <= hexp and i < BATCH -- so the record outlives it, as it does hexp
    if not usual then break end
    counted = math.max(counted + 1, now)
    n, tok = n + 1, fmt('%d', counted)
    places = '-'
    if side == 'x' then
      nx, xtok = 1, tok
    else
      used = used + part
      taken, places = number(taken, tonumber(lim), part)
    end
    enter[2 * i - 1], enter[2 * i] = next_, 'u' .. terms .. seq .. further .. places .. ' ' .. tok .. ' ' .. notify .. about
    gone[2 * i], gone[2 * i + 1] = member, 't' .. next_
    came[2 * i - 1], came[2 * i] = fmt('%d', exp - BAND), 'i' .. next_
    messages[i] = { notify, fmt('g %s %s %d %s %s', next_, tok, now, window, places) }
    soonest, quiet = math.min(soonest, exp), math.min(quiet, exp)
  end
  -- No party is left: the room is folded as save does, unless marks are left.
  if not usual or n == 0 and call('ZCARD', Z) > 2 then break end
  if KEYS[5] then call('PSETEX', KEYS[5], ARGV[2], '1') end
  if n == 0 then
    call('DEL', KEYS[1], R, Z)
    return { 4, 0, 0, 0, 0, now }
  end
  if enter[1] then call('SET', C, tok, 'PXAT', fmt('%d', math.floor(counted / 1000) + 3600000)) end
  local hint = stays and (stays ~= head or soonest < tonumber(when))
  if hint then when = fmt('%d', soonest) end
  if not stays then when = '0' end

  call('HDEL', R, id)
  if came[1] then call('ZADD', Z, unpack(came)) end
  call('ZREM', Z, unpack(gone)) -- after it, lest Z be empty, and gone with its end, in between
  enter[#enter + 1] = '#'
  enter[#enter + 1] = fmt('%s %s %s 0 %s %s %d %d %d %d - %s %d %s %d 0 %s', tok, seq, lim, stays or '-', when, n, nx, used, shares,
    xtok, hexp, rexp, quiet, taken)
  call('HSET', R, unpack(enter))
  for _, message in ipairs(messages) do redis.pcall('PUBLISH', message[1], message[2]) end
  if hint and address ~= '-' then redis.pcall('PUBLISH', address, fmt('a %s %d', stays, soonest - ms)) end
  return { 4, 0, 0, 0, 0, now }
until true
