-- record.lua: how a room is kept in its keys (room.lua).

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
