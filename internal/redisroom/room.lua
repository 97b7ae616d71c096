-- room.lua: the admission rule on Redis, shared by every script.
--
-- The functions have the names and the order they have in internal/room, and
-- the same meaning; there they are pure and explained. Only what differs is
-- commented here. Times are milliseconds, tokens and the clock microseconds,
-- all of the server.
--
-- KEYS of one room, all in one slot:
--   H  holder key. "<id> <terms> <meta>": an exclusive holder, and nobody else
--      about (the free path knows only this form). "*": the room is described
--      by R. Anything else is somebody else's lock.
--   R  while H has the first form or is absent: the last token, a plain
--      integer, which is the holder's if there is one. It outlives H.
--      Otherwise a hash: '#' the scalars, <id> a party, ~<id> why a lease was
--      broken. The free path's INCR fails on the hash, which is how it learns
--      of a queue without a command of its own.
--   Z  one sorted set in three bands: insiders by expiry - BAND (below 0),
--      tickets and marks by expiry, the queue by rank + QUEUE. Its member '#'
--      keeps it from vanishing, and losing its expiry, while R is a hash.
local call, pcall_ = redis.call, redis.pcall
local fmt, match, sub = string.format, string.match, string.sub
local BAND, ANCHOR, QUEUE = 2 ^ 45, 2 ^ 49, 2 ^ 50
local BEHIND, SUSPICION, BATCH, DROPS, PURGE = 2 ^ 46, 60000, 64, 1024, 256
local AHEAD, LIFE, YOUNG = 86400000000, 3600000, 1800000000

local H, R, Z            -- keys of the room at hand
local now, ms            -- the server's clock
local hv                 -- what H held when the call began
local simple             -- the holder in H's first form, if any
local foreign            -- remaining ms of somebody else's lock, if any
local isrec              -- R is a hash
local dirty              -- the scalars have changed
local tok, seq, lim, closed, head, when    -- as in room.Record
local n, nx, used, shares                  -- insiders; exclusive ones; weight inside; sharers inside or waiting
local ident, xtok                          -- re-entrant owner and token of the exclusive side
local hexp, rexp                           -- when H expires; when R and Z expire
local caller

-- A party is "<state> <mode> <policy> <weight> <ttl> <window> <delay> <min>
-- <rank> <token> <notify> <ident> <meta>"; state is w(aiting), u(nconfirmed)
-- or c(onfirmed), mode x or s, policy 0 to 3, "-" an empty word. Who waits has
-- in token's place when it was last called to come.
local PARTY = '^(%a) (%a) (%d) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (.*)$'

local function parse(id, s)
  local p = { id = id }
  local w, ttl, win, delay, min, rank, token
  p.state, p.mode, p.policy, w, ttl, win, delay, min, rank, token, p.notify, p.ident, p.meta = match(s, PARTY)
  p.weight, p.ttl, p.window, p.delay = tonumber(w), tonumber(ttl), tonumber(win), tonumber(delay)
  p.min, p.rank, p.token = tonumber(min), tonumber(rank), tonumber(token)
  return p
end

local function store(p)
  call('HSET', R, p.id, fmt('%s %s %s %d %d %d %d %d %d %d %s %s %s', p.state, p.mode, p.policy, p.weight,
    p.ttl, p.window, p.delay, p.min, p.rank, p.token, p.notify, p.ident, p.meta))
end

local function party(id)
  local s = call('HGET', R, id)
  return s and parse(id, s)
end

local function outlive(exp)
  if exp >= rexp then
    rexp = exp + LIFE
    call('PEXPIRE', R, rexp - ms)
    call('PEXPIRE', Z, rexp - ms)
  end
end

local function mark(name, untl)
  call('ZADD', Z, untl, name)
  outlive(untl)
end

local function expiry(p)
  if p.state == 'w' then return tonumber(call('ZSCORE', Z, 't' .. p.id)) end
  return tonumber(call('ZSCORE', Z, 'i' .. p.id)) + BAND
end

local function marked(name) return call('ZSCORE', Z, name) end

-- occupy keeps H, and so a foreign SET NX, out until exp.
local function occupy(exp)
  if exp > hexp then
    hexp = exp
    call('SET', H, '*', 'PX', exp - ms + 1)
    hv = '*'
  end
  outlive(exp)
end

local function drop(p)
  call('HDEL', R, p.id)
  if p.state == 'w' then
    call('ZREM', Z, 'q' .. p.id, 't' .. p.id)
  else
    call('ZREM', Z, 'i' .. p.id)
    n = n - 1
    if p.mode == 'x' then
      nx = nx - 1
    else
      used = used - p.weight
    end
  end
  if p.mode == 's' then shares = shares - 1 end
  dirty = true
end

-- general turns the first form into a record, before anything is written that
-- the first form cannot hold.
local function general()
  dirty = true
  if isrec then return end
  isrec = true
  call('DEL', R, Z)
  call('HSET', R, '#', '')
  call('ZADD', Z, ANCHOR, '#')
  if simple then
    local p = simple
    store(p)
    call('ZADD', Z, p.exp - BAND, 'i' .. p.id)
    n, nx, ident, xtok = 1, 1, p.ident, p.token
    simple = nil
    occupy(p.exp)
  end
end

-- purge is bounded: what is left is purged by the calls to come.
local function purge()
  if not isrec then return end
  for _, m in ipairs(call('ZRANGEBYSCORE', Z, '-inf', ms - BAND, 'LIMIT', 0, PURGE)) do
    local p = party(sub(m, 2))
    if p.delay > 0 then
      -- Its expiry is worth a command only in this case.
      local exp = expiry(p)
      if exp + p.delay > closed then closed = exp + p.delay end
    end
    drop(p)
    if p.state == 'u' then mark('!' .. p.notify, ms + SUSPICION) end
  end
  for _, m in ipairs(call('ZRANGEBYSCORE', Z, 0, ms, 'LIMIT', 0, PURGE)) do
    if sub(m, 1, 1) == 't' then
      local p = party(sub(m, 2))
      local missed = p.token > 0 and p.notify ~= '-' and expiry(p) == p.token + p.window
      drop(p)
      if missed then mark('!' .. p.notify, ms + SUSPICION) end
    else
      call('ZREM', Z, m)
      if sub(m, 1, 1) == '~' then call('HDEL', R, m) end
      dirty = true
    end
  end
  -- Without "*" in H nothing has kept others out: nobody is inside any more.
  while n > 0 and hv ~= '*' do
    local in_ = call('ZRANGEBYSCORE', Z, '-inf', '(0', 'LIMIT', 0, PURGE)
    if #in_ == 0 then break end
    for _, m in ipairs(in_) do drop(party(sub(m, 2))) end
  end
  if hv ~= '*' then n, nx, used, hexp = 0, 0, 0, 0 end
end

local SCALARS = '^(%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%d+) (%d+)$'

local function load_record(s)
  isrec = true
  tok, seq, lim, closed, head, when, n, nx, used, shares, ident, xtok, hexp, rexp = match(s, SCALARS)
  tok, seq, lim, closed, when = tonumber(tok), tonumber(seq), tonumber(lim), tonumber(closed), tonumber(when)
  n, nx, used, shares = tonumber(n), tonumber(nx), tonumber(used), tonumber(shares)
  xtok, hexp, rexp = tonumber(xtok), tonumber(hexp), tonumber(rexp)
end

-- glance reads H: the first form, or somebody else's lock. It returns an error
-- for what is no lock at all.
local function glance()
  if not hv or (isrec and hv == '*') then return end
  -- Not PTTL: it counts from a moment later than ms if the server was held up
  -- since, and a lease would end early by that.
  local at = call('PEXPIRETIME', H)
  if at < 0 then return redis.error_reply('LHFOREIGN the key holds a string without expiry') end
  if hv == '*' then
    -- The record of those inside is gone, and they may not know yet: the room
    -- stays closed until the last of their leases is over.
    if at > closed then closed = at end
    return
  end
  local left = math.max(at - ms, 0)
  local id, notify, who, meta = match(hv, '^([%w_.-]+) x [%d ]+ (%S+) (%S+) ({.*})$')
  if not id or isrec then
    foreign = left
    return
  end
  if tok == 0 then
    -- Deleted by hand or evicted. What was given before is less.
    tok = now
    call('SET', R, tok, 'PX', LIFE + left)
  end
  simple = { id = id, state = 'c', mode = 'x', policy = '0', weight = 1, ttl = 0, window = 0, delay = 0, min = 0,
    rank = 0, token = tok, notify = notify, ident = who, meta = meta, exp = at }
  n, nx, ident, xtok = 1, 1, who, tok
end

-- open reads the room of three keys. It returns an error reply or nothing.
local function open(h, r, z, id)
  H, R, Z, caller = h, r, z, id
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
  ms = math.floor(now / 1000)
  simple, foreign, isrec, dirty = nil, nil, false, false
  tok, seq, lim, closed, head, when = 0, 0, 0, 0, '-', 0
  n, nx, used, shares, ident, xtok, hexp, rexp = 0, 0, 0, 0, '-', 0, 0, 0
  hv = pcall_('GET', H)
  if type(hv) == 'table' then return redis.error_reply('LHFOREIGN the key holds a ' .. call('TYPE', H).ok) end
  local s = pcall_('HGET', R, '#')
  if type(s) == 'string' then
    load_record(s)
    -- One of the two keys was evicted or deleted: begin again, but for the token.
    if call('EXISTS', Z) == 0 then
      isrec, n, nx, used, shares, closed, head, hexp, rexp = false, 0, 0, 0, 0, 0, '-', 0, 0
    end
  elseif type(s) == 'table' then
    tok = tonumber(pcall_('GET', R))
    if not tok then return redis.error_reply('LHFOREIGN the key of the token holds a ' .. call('TYPE', R).ok) end
  elseif call('EXISTS', R) == 1 then
    return redis.error_reply('LHFOREIGN the key of the token holds a ' .. call('TYPE', R).ok)
  end
  local err = glance()
  if not err then purge() end
  return err
end

local function reenters(p)
  return p.ident ~= '-' and p.mode == 'x' and nx > 0 and ident == p.ident
end

-- taken settles most cases without a look at who waits.
local function taken() return nx > 0 and ident == '-' end

local function fits(p)
  if reenters(p) then return true end
  if foreign or ms < closed then return false end
  if p.mode == 'x' then return n == 0 end
  return nx == 0 and (lim == 0 or used + p.weight <= lim)
end

local function first()
  if not isrec then return end
  local q = call('ZRANGEBYSCORE', Z, QUEUE, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if q[1] then return sub(q[1], 2), tonumber(q[2]) - QUEUE end
end

local function must_pass(p)
  if p.policy == '1' or reenters(p) then return false end
  local id, rank = first()
  return id and rank < p.rank
end

local function admits(p) return fits(p) and not must_pass(p) end

local function rank(p)
  local first_ = (p.policy == '2' and p.mode == 'x') or (p.policy == '3' and p.mode == 's')
  return seq + 1 + (first_ and 0 or BEHIND)
end

local function mint(p)
  if reenters(p) then return xtok end
  tok = math.max(tok + 1, now, p.min + 1)
  return tok
end

local function remember() return LIFE + math.max(0, math.floor(tok / 1000) - ms) end

local function raise(p, to)
  if to <= p.token or to > now + AHEAD then return end
  tok = math.max(tok, to)
  p.token = to
  if simple then
    call('SET', R, fmt('%d', tok), 'PX', remember() + p.exp - ms)
    return
  end
  dirty = true
  store(p)
  if p.mode == 's' then return end
  xtok = to
  if n == 1 then return end
  for _, m in ipairs(call('ZRANGEBYSCORE', Z, '-inf', '(0')) do
    local q = party(sub(m, 2))
    q.token = to
    store(q)
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
  p.state = state
  n = n + 1
  if p.mode == 'x' then
    nx, ident, xtok = nx + 1, p.ident, p.token
  else
    used = used + p.weight
  end
  store(p)
  call('ZADD', Z, exp - BAND, 'i' .. p.id)
  occupy(exp + p.delay)
end

local function queue(p, exp)
  general()
  seq = seq + 1
  p.state = 'w'
  if p.mode == 's' then shares = shares + 1 end
  store(p)
  call('ZADD', Z, exp, 't' .. p.id, p.rank + QUEUE, 'q' .. p.id)
  outlive(exp)
end

local function refresh(p, wait, notify)
  call('ZADD', Z, ms + wait, 't' .. p.id)
  outlive(ms + wait)
  if p.notify ~= notify then
    p.notify = notify
    store(p)
  end
  if notify ~= '-' then call('ZREM', Z, '!' .. notify) end
end

local function wake(p, text)
  -- Without the right to publish the waiters poll.
  if p.notify ~= '-' and p.id ~= caller then pcall_('PUBLISH', p.notify, text) end
end

-- Somebody else's lock may end earlier than its expiry, and nobody tells.
local function next_ask()
  if foreign then return math.min(foreign, 500) end
  if ms < closed then return closed - ms end
  if simple then return simple.exp - ms end
  if n == 0 then return 0 end
  return tonumber(call('ZRANGE', Z, 0, 0, 'WITHSCORES')[2]) + BAND - ms
end

-- call_in is room's call.
local function call_in(p)
  if ms + p.window >= expiry(p) then return false end
  call('ZADD', Z, ms + p.window, 't' .. p.id)
  p.token = ms
  store(p)
  return true
end

local function summon(p)
  if not fits(p) then return 0 end
  local id = first()
  if not id or id == p.id then return 0 end
  local h = party(id)
  if h.notify == '-' then return 0 end
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
  if id ~= caller then wake(p or party(id), fmt('a %s %d', id, next_)) end
end

local function hand_over()
  local id = first()
  local entered, dropped = 0, 0
  while entered < BATCH and dropped < DROPS do
    if not id or taken() then break end
    local p = party(id)
    if p.notify ~= '-' and marked('!' .. p.notify) or p.mode == 's' and lim > 0 and p.weight > lim then
      drop(p)
      dropped = dropped + 1
    elseif not fits(p) or p.notify == '-' then
      break
    elseif p.policy == '1' then
      call_in(p)
      break
    else
      enter(p, ms + p.window, 'u')
      entered = entered + 1
      wake(p, fmt('g %s %d %d %d', id, p.token, now, p.window))
    end
    id = first()
  end
  hint_head(id)
end

-- acquit forgets whom was suspected, when nobody waits. Here it is put off until
-- the room could be folded.
local function acquit()
  for _, m in ipairs(call('ZRANGEBYSCORE', Z, 0, '(' .. fmt('%d', ANCHOR), 'LIMIT', 0, PURGE)) do
    if sub(m, 1, 1) == '!' then call('ZREM', Z, m) end
  end
end

-- save writes the scalars, or folds an empty room back into its token.
local function save()
  if not dirty or not isrec then return end
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
    acquit()
    left = call('ZCARD', Z)
  end
  if left == 1 then
    call('DEL', R, Z)
    -- Nobody is inside, so an old counter can be seeded anew (counter.go).
    if tok > 0 and tok < now - YOUNG then tok = now end
    if tok > 0 then call('SET', R, fmt('%d', tok), 'PX', remember()) end
    return
  end
  call('HSET', R, '#', fmt('%d %d %d %d %s %d %d %d %d %d %s %d %d %d', tok, seq, lim, closed, head, when,
    n, nx, used, shares, ident, xtok, hexp, rexp))
end

local function reply(state, token, holds, position, next_)
  return { state, token or 0, holds or 0, position or 0, next_ or 0, now }
end

-- glimpse appends the party that stays longest.
local function glimpse(out)
  local id, left, p
  if foreign then
    id, left, p = hv, foreign, { mode = 'x', weight = 1, token = 0, state = 'f', meta = '' }
  elseif simple then
    p, id, left = simple, simple.id, simple.exp - ms
  elseif n > 0 then
    local last = call('ZREVRANGEBYSCORE', Z, '(0', '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
    id, left = sub(last[1], 2), tonumber(last[2]) + BAND - ms
    p = party(id)
  end
  if id then
    for i, v in ipairs({ id, left, p.mode, p.weight, p.token, p.state, p.meta }) do out[6 + i] = v end
  end
  return out
end

local GONE, BUSY, QUEUED, GRANTED, RELEASED, LEFT, RESIZED = 0, 1, 2, 3, 4, 5, 6

local function granted(p) return reply(GRANTED, p.token, p.mode == 'x' and n or 1) end

local function broken(id)
  local why = isrec and call('HGET', R, '~' .. id)
  local out = reply(GONE)
  if why then out[7] = why end
  return out, why
end

local function busy() return glimpse(reply(BUSY, 0, 0, 0, next_ask())) end

local function queued(id, r, called)
  local position = call('ZCOUNT', Z, QUEUE, r + QUEUE)
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
  if simple then
    call('PEXPIRE', H, ttl, 'GT')
    call('PEXPIRE', R, LIFE + ttl, 'GT')
    simple.exp = math.max(simple.exp, ms + ttl)
  else
    call('ZADD', Z, 'GT', ms + ttl - BAND, 'i' .. p.id)
    if p.state == 'u' then
      p.state = 'c'
      store(p)
    end
    occupy(ms + ttl + p.delay)
    dirty = true
  end
  return granted(p)
end

-- ask_ is room's ask. It returns nothing if the ticket was dropped on the way.
local function ask_(p, ttl)
  hand_over()
  p = party(p.id)
  if not p then return end
  if p.state ~= 'w' then return confirm(p, ttl) end
  if not admits(p) then return queued(p.id, p.rank, summon(p)) end
  enter(p, ms + ttl, 'c')
  local out = granted(p)
  hand_over()
  return out
end
