-- room/3_rule.lua: the admission rule, in the order of internal/room. save writes the
-- changes; reply, granted, busy and queued make the answers.
--
-- Inherits  the variables of room/1_state.lua; the functions of room/2_record.lua
local BATCH = 64

local function reenters(p)
  return p.ident ~= '-' and p.mode == 'x' and nx > 0 and ident == p.ident
end

-- taken decides most cases without reading the queue.
local function taken() return nx > 0 and ident == '-' end

local function fits(p)
  if reenters(p) then return true end
  if foreign or ms < closed then return false end
  if p.mode == 'x' then return n == 0 end
  return nx == 0 and (lim == 0 or used + p.weight <= lim)
end

local function first()
  if not isrec then return end
  local q = call('ZRANGEBYSCORE', Z, QUEUE, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
  if q[1] then return sub(q[1], 2), tonumber(q[2]) - QUEUE end
end

local function must_yield(p)
  if p.policy == '1' or reenters(p) then return false end
  local id, rank = first()
  return id and rank < p.rank
end

local function admits(p) return fits(p) and not must_yield(p) end

local function rank(p)
  local first_ = (p.policy == '2' and p.mode == 'x') or (p.policy == '3' and p.mode == 's')
  return seq + 1 + (first_ and 0 or BEHIND)
end

local function mint(p) return reenters(p) and xtok or next_token(p.min) end

-- raise gives p, which is confirmed after that, a token that is another one. Tokens fall
-- only to be levelled.
local function raise(p, to, level)
  if to > now + AHEAD or to == p.token or to < p.token and not level then return end
  tok = math.max(tok, to)
  if not cover(true) then general() end -- the uncontended form has no token of its own
  p.token = to
  if uncontended then
    hv = match(hv, '^(.* )%d+$') .. fmt('%d', to)
    call('SET', H, hv, 'KEEPTTL')
    return
  end
  store(p)
  if p.mode == 's' then return end
  xtok = to
  if n == 1 then return end
  for _, m in ipairs(call('ZRANGEBYSCORE', Z, '-inf', '(0')) do
    local q = party(sub(m, 2))
    if q then
      q.token = to
      store(q)
    end
  end
end

local function enter(p, exp, state)
  p.token = mint(p)
  general()
  if p.state == 'w' then
    call('ZREM', Z, 'q' .. p.id, 't' .. p.id)
  elseif p.mode == 's' then
    shares = shares + 1
  end
  p.state, p.places = state, '-'
  n = n + 1
  if p.mode == 'x' then
    nx, ident, xtok = nx + 1, p.ident, p.token
  else
    take(p)
  end
  store(p)
  set_end('i' .. p.id, exp)
  occupy(exp + p.delay)
end

local function queue(p, exp)
  general()
  seq = seq + 1
  p.state = 'w'
  if p.mode == 's' then shares = shares + 1 end
  store(p)
  set_end('t' .. p.id, exp)
  call('ZADD', Z, fmt('%d', p.rank + QUEUE), 'q' .. p.id)
  outlive(exp)
end

-- belong adds a party to a visit.
local function belong(p, visit)
  local meta = with_visit(p, visit)
  if meta == p.meta then return end
  general()
  p.meta = meta
  store(p)
end

local function refresh(p, wait, notify)
  set_end('t' .. p.id, ms + wait)
  outlive(ms + wait)
  if p.notify ~= notify then
    p.notify = notify
    store(p)
  end
  trust(notify)
  if notify ~= '-' then set_end('@' .. notify, ms + SUSPICION) end
end

local function wake(p, text)
  -- Without the right to publish the waiters poll.
  if p.notify ~= '-' and p.id ~= caller then pcall_('PUBLISH', p.notify, text) end
end

-- Another library's lock may end before its expiry, without a hint.
local function next_ask()
  if foreign then return math.min(foreign, 500) end
  if ms < closed then return closed - ms end
  if uncontended then return uncontended.exp - ms end
  if n == 0 then return 0 end
  local soonest = tonumber(call('ZRANGE', Z, '0', '0', 'WITHSCORES')[2])
  if not soonest or soonest >= 0 then return math.max(hexp - ms, 1) end
  return math.max(soonest + BAND - ms, 1)
end

-- call_in is room's call.
local function call_in(p)
  if ms + p.window >= expiry(p) then return false end
  set_end('t' .. p.id, ms + p.window)
  p.token, p.before = ms, seq
  store(p)
  return true
end

local function ping_head(p)
  if not fits(p) then return 0 end
  local id = first()
  if not id or id == p.id then return 0 end
  local h = party(id)
  if not h or h.notify == '-' then return 0 end
  if ms >= h.token + h.window and call_in(h) then
    head, when, dirty = id, ms, true
    wake(h, fmt('a %s %d', id, 0))
  end
  local next_, left = expiry(h) - ms, h.token + h.window - ms
  return left > 0 and left < next_ and left or next_
end

local function hint_head(id)
  if not id then
    if head ~= '-' then head, when, dirty = '-', 0, true end
    return
  end
  local p = not taken() and party(id)
  local next_ = p and fits(p) and 0 or next_ask()
  if id == head and ms + next_ >= when then return end
  head, when, dirty = id, ms + next_, true
  if id == caller then return end
  p = p or party(id)
  if p then wake(p, fmt('a %s %d', id, next_)) end
end

-- dead is room's dead.
local function dead(p)
  return p.notify ~= '-' and marked('!' .. p.notify) and p.rank % BEHIND <= suspected('!' .. p.notify)
end

local function unwanted(p)
  return not p or dead(p) or p.mode == 's' and lim > 0 and p.weight > lim
end

-- drop_heads drops more and more at a time, since mostly there is one. It is bounded:
-- later calls drop the rest.
local function drop_heads()
  local dropped, some = 0, 1
  repeat
    some = math.min(8 * some, PURGE)
    local ids, gone = {}, {}
    for i, m in ipairs(call('ZRANGEBYSCORE', Z, QUEUE, '+inf', 'LIMIT', '0', fmt('%d', some))) do ids[i] = sub(m, 2) end
    if not ids[1] then return end
    for i, words in ipairs(call('HMGET', R, unpack(ids))) do
      local p = words and parse(ids[i], words)
      if not unwanted(p) then break end
      if p then discount(p) end
      gone[2 * i - 1], gone[2 * i] = 'q' .. ids[i], 't' .. ids[i]
    end
    local n = #gone / 2
    if n > 0 then
      call('ZREM', Z, unpack(gone))
      call('HDEL', R, unpack(ids, 1, n))
    end
    dropped = dropped + n
  until n < #ids or dropped >= 16384
end

local function hand_over()
  local id = first()
  local entered = 0
  while entered < BATCH do
    if not id or taken() then break end
    local p = party(id)
    if unwanted(p) then
      drop_heads()
      id = first()
      p = id and party(id)
      if unwanted(p) then break end
    end
    if not fits(p) or p.notify == '-' then
      break
    elseif p.policy == '1' then
      call_in(p)
      break
    else
      p.before = seq
      enter(p, ms + p.window, 'u')
      entered = entered + 1
      wake(p, fmt('g %s %d %d %d %s', id, p.token, now, p.window, p.places))
    end
    id = first()
  end
  hint_head(id)
end

-- save writes the counter and the scalars, or removes the record of an empty room.
local function save()
  if not dirty or not isrec then return save_counter() end
  if n == 0 and not foreign then
    if closed > ms and hexp ~= closed then
      hexp = 0
      occupy(closed)
    elseif closed <= ms and hv == '*' then
      hexp = 0
      call('DEL', H)
    end
  end
  local left = n == 0 and closed <= ms and call('ZCARD', Z)
  if left and left > 1 and not first() then
    clear_suspects()
    left = call('ZCARD', Z)
  end
  if left == 1 then
    call('DEL', Z)
    return keep_token()
  end
  save_counter()
  outlive(ms)
  save_scalars()
end

local function reply(state, token, holds, position, next_)
  return { state, token or 0, holds or 0, position or 0, next_ or 0, now }
end

-- with_holder appends the party that stays longest.
local function with_holder(out)
  local id, left, p
  if foreign then
    id, left, p = hv, foreign, { mode = 'x', weight = 1, places = '-', token = 0, state = 'f', meta = '' }
  elseif uncontended then
    p, id, left = uncontended, uncontended.id, uncontended.exp - ms
  elseif n > 0 then
    local last = call('ZREVRANGEBYSCORE', Z, '(0', '-inf', 'WITHSCORES', 'LIMIT', '0', '1')
    if last[1] then
      id, left = sub(last[1], 2), tonumber(last[2]) + BAND - ms
      p = party(id)
    end
  end
  if p then
    for i, v in ipairs({ id, left, p.mode, p.weight, p.places, p.token, p.state, p.meta }) do out[6 + i] = v end
  end
  return out
end

local GONE, BUSY, QUEUED, GRANTED, RELEASED, LEFT, RESIZED = 0, 1, 2, 3, 4, 5, 6

local function granted(p)
  local out = reply(GRANTED, p.token, p.mode == 'x' and n or 1)
  if p.places ~= '-' then out[7] = p.places end
  return out
end

local function broken(id)
  local why = isrec and call('HGET', R, '~' .. id)
  local out = reply(GONE)
  if why then out[7] = why end
  return out, why
end

local function busy() return with_holder(reply(BUSY, 0, 0, 0, next_ask())) end

local function queued(id, r, called)
  local position = call('ZCOUNT', Z, QUEUE, fmt('%d', r + QUEUE))
  local next_ = 0
  if position == 1 then
    next_ = next_ask()
    head, when, dirty = id, ms + next_, true
  elseif position == 2 then
    next_ = called
  end
  return reply(QUEUED, 0, 0, position, next_)
end

local function confirm(p, ttl)
  if uncontended then
    call('PEXPIREAT', H, fmt('%d', ms + ttl), 'GT')
  else
    call('ZADD', Z, 'GT', fmt('%d', ms + ttl - BAND), 'i' .. p.id)
    if p.state == 'u' then
      p.state = 'c'
      store(p)
    end
    occupy(ms + ttl + p.delay)
    dirty = true
  end
  local out = granted(p)
  if head ~= '-' then out[5] = 1 end
  return out
end

-- ask_ is ask of internal/room. It returns nil if the ticket was dropped in between.
local function ask_(p, ttl)
  hand_over()
  p = party(p.id)
  if not p then return end
  if p.state ~= 'w' then return confirm(p, ttl) end
  if not admits(p) then return queued(p.id, p.rank, ping_head(p)) end
  enter(p, ms + ttl, 'c')
  local out = granted(p)
  hand_over()
  return out
end
