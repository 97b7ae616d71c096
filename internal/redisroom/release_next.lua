-- release.lua, continued: the commonest hand-over in a straight line, since only
-- to define the functions of the general path takes as long as all of this. The one
-- holder of a mutex leaves, and the next waits for a mutex too. Whatever is not
-- so goes on below; nothing has been written until then.
repeat
  if held ~= '*' or KEYS[4] then break end
  local call, fmt, match, sub, R, Z = redis.call, string.format, string.match, string.sub, KEYS[2], KEYS[3]
  local BAND, QUEUE = 2 ^ 45, 2 ^ 50
  local id = sub(ARGV[1], 1, -2)
  local mine = redis.pcall('HMGET', R, '#', id)
  if not mine[1] or not mine[2] or sub(mine[2], 1, 1) == 'w' then break end
  local tok, seq, lim, used, shares, hexp, rexp =
    match(mine[1], '^(%d+) (%d+) (%d+) 0 %S+ %d+ 1 1 (%d+) (%d+) %- %d+ (%d+) (%d+)$')
  if not tok then break end

  local t = call('TIME')
  local now = t[1] * 1000000 + t[2]
  local ms = math.floor(now / 1000)
  local inside = call('ZRANGE', Z, 0, 0, 'WITHSCORES')
  if inside[1] ~= 'i' .. id or inside[2] + BAND <= ms then break end
  if call('ZRANGEBYSCORE', Z, 0, ms, 'LIMIT', 0, 1)[1] then break end -- to be purged
  local queue = call('ZRANGEBYSCORE', Z, QUEUE, '+inf', 'LIMIT', 0, 2)
  local next_ = queue[1] and sub(queue[1], 2)
  local terms, window, rank, notify, about =
    match(next_ and call('HGET', R, next_) or '', '^w( x [023] %d+ %d+ (%d+) 0 0 )(%d+) 0 (%S+)( %- .*)$')
  if not terms or notify == '-' or call('ZSCORE', Z, '!' .. notify) then break end
  local exp = ms + window
  if exp > tonumber(hexp) or exp >= tonumber(rexp) then break end

  local token = fmt('%d', math.max(tok + 1, now))
  local head = queue[2] and sub(queue[2], 2)
  call('HDEL', R, id)
  call('HSET', R, next_, 'u' .. terms .. rank .. ' ' .. token .. ' ' .. notify .. about,
    '#', fmt('%s %s %s 0 %s %d 1 1 %s %s - %s %s %s', token, seq, lim, head or '-', head and exp or 0,
      used, shares, token, hexp, rexp))
  call('ZREM', Z, 'i' .. id, queue[1], 't' .. next_)
  call('ZADD', Z, exp - BAND, 'i' .. next_)
  redis.pcall('PUBLISH', notify, fmt('g %s %s %d %s', next_, token, now, window))
  local ears = head and match(call('HGET', R, head), '^%a %a %d %d+ %d+ %d+ %d+ %d+ %d+ %d+ (%S+)')
  if ears and ears ~= '-' then redis.pcall('PUBLISH', ears, 'a ' .. head .. ' ' .. window) end
  return { 4, 0, 0, 0, 0, now }
until true
