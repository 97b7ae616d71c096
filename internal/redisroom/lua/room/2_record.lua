-- room/2_record.lua: how a room is stored in its keys. open reads it, save_scalars writes
-- the scalars.
--
-- Inherits  the variables of room/1_state.lua
--
-- If a script fails half-way, its writes stay. So everything that may fail comes before
-- the first write: open checks the types of the keys and the form of the scalars. Expiry
-- times are absolute, so the server accepts any value. Parts that are missing all the same
-- count as absent.

-- include places.lua

-- A party is "<state> <mode> <policy> <weight> <before> <window> <delay> <min>
-- <rank> <token> <notify> <ident> <meta>"; state is w(aiting), u(nconfirmed)
-- or c(onfirmed), mode x or s, policy 0 to 3, "-" an empty word. A waiter has the time
-- of its last call in place of the token, an insider its places in place of the rank.
-- Before is the number of arrivals before a party when it was called or handed the room.
local PARTY = '^(%a) (%a) (%d) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%S+) (%S+) (.*)$'

local function parse(id, s)
  local p = { id = id }
  local w, before, win, delay, min, rank, token
  p.state, p.mode, p.policy, w, before, win, delay, min, rank, token, p.notify, p.ident, p.meta = match(s, PARTY)
  if not p.state then return end
  p.weight, p.before, p.window, p.delay = tonumber(w), tonumber(before), tonumber(win), tonumber(delay)
  p.min, p.rank, p.places, p.token = tonumber(min), tonumber(rank), rank, tonumber(token)
  return p
end

-- visit_of reads the visit that a party belongs to, which begins its meta.
local function visit_of(meta) return match(meta, '^{"v":"([^"]+)",') or '' end

local function below(visit, name)
  return sub(visit .. '/', 1, #name + 1) == name .. '/'
end

local function common(a, b)
  while a ~= '' and not below(b, a) do a = match(a, '^(.*)/') or '' end
  return a
end

local function with_visit(p, visit)
  local meta = string.gsub(p.meta, '^{"v":"[^"]+",', '{', 1)
  return visit == '' and meta or '{"v":"' .. visit .. '",' .. sub(meta, 2)
end

local function store(p)
  call('HSET', R, p.id, fmt('%s %s %s %d %d %d %d %d %s %d %s %s %s', p.state, p.mode, p.policy, p.weight,
    p.before, p.window, p.delay, p.min, p.state == 'w' and fmt('%d', p.rank) or p.places, p.token, p.notify, p.ident, p.meta))
end

local function party(id)
  local s = call('HGET', R, id)
  return s and parse(id, s)
end

-- life returns until when a token of a room is kept that is needed until exp: an hour longer,
-- and until an hour after the server's clock has passed it.
local function life(exp)
  return 3600000 + math.max(exp, ms) + math.max(math.floor(tok / 1000) - ms, 0)
end

-- outlive keeps the record until exp at least. To avoid a command in every call, its life is
-- renewed only after half an hour.
local function outlive(exp)
  if math.max(exp, math.floor(tok / 1000)) + SPARE < rexp then return end
  rexp = life(exp)
  local at = fmt('%d', rexp)
  call('PEXPIREAT', R, at)
  call('PEXPIREAT', Z, at)
end

-- set_end sets when a member of Z ends. The score of an insider is BAND below that.
local function set_end(member, exp)
  call('ZADD', Z, fmt('%d', sub(member, 1, 1) == 'i' and exp - BAND or exp), member)
  if exp < quiet then quiet, dirty = exp, true end
end

local function mark(name, untl)
  set_end(name, untl)
  outlive(untl)
end

local function expiry(p)
  if p.state == 'w' then return tonumber(call('ZSCORE', Z, 't' .. p.id) or 0) end
  return tonumber(call('ZSCORE', Z, 'i' .. p.id) or -BAND) + BAND
end

local function marked(name) return call('ZSCORE', Z, name) end

-- suspected returns up to which arrival a process is suspect: all arrivals by default.
local function suspected(name) return tonumber(call('HGET', R, name) or '') or BEHIND end

-- suspect records that a process missed a hand-over, with the arrivals before that in a
-- field of the mark's name.
local function suspect(address, before)
  local name = '!' .. address
  local known = marked(name)
  if not known then suspects, dirty = suspects + 1, true end
  if tonumber(known or 0) > ms then before = math.max(before, suspected(name)) end
  call('HSET', R, name, fmt('%d', before))
  mark(name, ms + SUSPICION)
end

-- trust forgets that a process was suspect.
local function trust(address)
  if suspects == 0 or address == '-' or call('ZREM', Z, '!' .. address) == 0 then return end
  call('HDEL', R, '!' .. address)
  suspects, dirty = suspects - 1, true
end

-- clear_suspects forgets suspects when there are no waiters. Here it is put off until the room
-- could be folded.
local function clear_suspects()
  for _, m in ipairs(call('ZRANGEBYSCORE', Z, '0', '(' .. ANCHOR, 'LIMIT', '0', fmt('%d', PURGE))) do
    local kind = sub(m, 1, 1)
    if kind == '!' then
      call('HDEL', R, m)
      suspects = suspects - 1
    end
    if kind == '!' or kind == '@' then call('ZREM', Z, m) end
  end
end

-- heard is Heard of internal/room.
local function heard(address) return (marked('@' .. address) or 0) - SUSPICION end

-- occupy keeps H, and so a foreign SET NX, out until exp.
local function occupy(exp)
  if exp > hexp then
    hexp = exp
    call('SET', H, '*', 'PXAT', fmt('%d', exp + 1))
    hv = '*'
  end
  outlive(exp)
end

-- take counts the weight of an insider, and gives it places.
local function take(p)
  used = used + p.weight
  taken_places, p.places = number(taken_places, lim, p.weight)
end

-- discount subtracts a party that has gone from the scalars.
local function discount(p)
  dirty = true
  if p.mode == 's' then shares = shares - 1 end
  if p.state == 'w' then return end
  n = n - 1
  if p.mode == 'x' then
    nx = nx - 1
  else
    used = used - p.weight
    taken_places = vacate(taken_places, p.places)
  end
  if n == 0 then used, taken_places = 0, '0' end -- with the places of parties that were lost
end

local function drop(p)
  call('HDEL', R, p.id)
  if p.state == 'w' then
    call('ZREM', Z, 'q' .. p.id, 't' .. p.id)
  else
    call('ZREM', Z, 'i' .. p.id)
  end
  discount(p)
end

local function save_scalars()
  call('HSET', R, '#', fmt('%d %d %d %d %s %d %d %d %d %d %s %d %d %d %d %d %s', tok, seq, lim, closed, head, when,
    n, nx, used, shares, ident, xtok, hexp, rexp, quiet, suspects, taken_places))
end

-- general turns the uncontended form into a record, before anything is written that
-- the uncontended form cannot hold.
local function general()
  dirty = true
  if isrec then return end
  isrec, rexp, quiet, suspects = true, 0, 2 ^ 49, 0
  local p = uncontended
  if owns then call('DEL', R) end
  save_scalars() -- first, since a full server refuses it unless there was another write
  call('DEL', Z)
  call('ZADD', Z, ANCHOR, '#')
  outlive(p and p.exp or ms)
  if p then
    store(p)
    set_end('i' .. p.id, p.exp)
    n, nx, ident, xtok = 1, 1, p.ident, p.token
    uncontended = nil
    occupy(p.exp)
  end
end

-- expired notes that the time of a lease or ticket is over. It
-- reports whether that makes its process suspect.
local function expired(kind, p, exp)
  discount(p)
  local missed
  if kind == 't' then
    missed = p.token > 0 and p.notify ~= '-' and exp == p.token + p.window
  else
    if p.delay > 0 and exp + p.delay > closed then closed = exp + p.delay end
    missed = p.state == 'u'
  end
  return missed and heard(p.notify) <= exp - p.window
end

-- sweep removes some members of Z by their scores, and returns whether there were any.
-- Lost members do not count as expired.
local function sweep(low, high, lost)
  local found = call('ZRANGEBYSCORE', Z, low, high, 'WITHSCORES', 'LIMIT', '0', fmt('%d', PURGE))
  if not found[1] then return false end
  local members, fields, late = {}, {}, {}
  for i = 1, #found, 2 do
    local m, kind = found[i], sub(found[i], 1, 1)
    members[#members + 1] = m
    if kind == 't' then members[#members + 1] = 'q' .. sub(m, 2) end
    fields[#fields + 1] = (kind == 'i' or kind == 't') and sub(m, 2) or m
  end
  for i, words in ipairs(call('HMGET', R, unpack(fields))) do
    local m, exp = found[2 * i - 1], tonumber(found[2 * i])
    local kind = sub(m, 1, 1)
    local p = words and (kind == 'i' or kind == 't') and parse(fields[i], words)
    if kind == 'i' then exp = exp + BAND end
    if kind == '!' then suspects = suspects - 1 end
    if p and lost then
      discount(p)
    elseif p then
      late[#late + 1] = expired(kind, p, exp) and p or nil
    elseif kind == 'i' then
      n, nx = n - 1, math.max(nx - 1, 0)
    end
  end
  dirty = true
  call('ZREM', Z, unpack(members))
  call('HDEL', R, unpack(fields))
  for _, p in ipairs(late) do suspect(p.notify, p.before) end
  return true
end

-- purge is bounded, since a script holds up all other clients: it returns an error if
-- thousands have expired at once, and the caller repeats the call.
local function purge()
  if not isrec then return end
  local sweeps = 0
  if ms >= quiet then
    while sweeps < SWEEPS and sweep('-inf', fmt('%d', ms - BAND)) do sweeps = sweeps + 1 end
    while sweeps < SWEEPS and sweep('0', fmt('%d', ms)) do sweeps = sweeps + 1 end
    if sweeps > 0 and head ~= '-' and call('ZCOUNT', Z, QUEUE, '+inf') == 0 then head, when = '-', 0 end
    -- include ends.lua
  end
  -- Without "*" in H no other client was kept out: all leases are over.
  while hv ~= '*' and n > 0 and sweep('-inf', '(0', true) do end
  if hv ~= '*' then hexp = 0 end
  if hv ~= '*' or n <= 0 then n, nx, used, taken_places = 0, 0, 0, '0' end
  if sweeps < SWEEPS then return end
  save_scalars()
  return redis.error_reply('LHMORE there is more to be removed')
end

local SCALARS = '^(%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$'

-- load_record reads the scalars, if they are whole.
local function load_record(s)
  local f = { match(s, SCALARS) }
  if not f[1] then return false end
  for i = 1, 16 do
    if i ~= 5 and i ~= 11 then f[i] = tonumber(f[i]) end
  end
  tok, seq, lim, closed, head, when, n, nx, used, shares, ident, xtok, hexp, rexp, quiet, suspects, taken_places = unpack(f)
  return true
end

-- glance reads H: the uncontended form, or another library's lock. It returns an error
-- for anything else.
local function glance()
  if not hv or (isrec and hv == '*') then return end
  -- Not PTTL: it counts from a moment later than ms if the server was held up
  -- since, and a lease would end early by that.
  local at = call('PEXPIRETIME', H)
  if at == -1 then return redis.error_reply('LHFOREIGN the key holds a string without expiry') end
  if at <= ms then
    -- Over since the script began: for a script its keys stay until its end.
    hv = false
    return
  end
  if hv == '*' then
    -- The record of the insiders is gone, and they may still rely on their leases: the room
    -- stays closed until the last of these is over.
    if at > closed then closed = at end
    return
  end
  local id, notify, who, meta, token = match(hv, '^([%w_.-]+) x [%d ]+ (%S+) (%S+) ({.*}) (%d+)$')
  if not id or isrec then
    foreign = at - ms
    return
  end
  token = tonumber(token)
  tok = math.max(tok, token)
  uncontended = { id = id, state = 'c', mode = 'x', policy = '0', weight = 1, before = 0, window = 0, delay = 0, min = 0,
    places = '-', token = token, notify = notify, ident = who, meta = meta, exp = at }
  n, nx, ident, xtok = 1, 1, who, token
end

local function save_counter()
  if counted then call('SET', C, fmt('%d', counter), 'PXAT', fmt('%d', math.floor(counter / 1000) + 3600000)) end
  counted = false
end

-- next_token takes the next token of the counter, unless the room had or wants one above it.
-- The counter stays as it is then, lest one request push the tokens of all rooms far ahead.
local function next_token(min)
  local next_ = math.max((counter or 0) + 1, now)
  tok = math.max(tok + 1, next_, min + 1)
  if tok == next_ and counter then counter, counted = tok, true end
  return tok
end

-- cover raises the counter to the last token of the room, and above all earlier ones if it is
-- lost or older than a counter can be. It reports false if the token is ahead of the clock, so
-- that the room has to keep it. One that a quorum has raised may be ahead by LEAD.
local function cover(raised)
  if tok <= (counter or 0) then return true end
  if not counter or tok > now + (raised and LEAD or 0) then return false end
  counter, counted = counter > now - 3600000000 and tok or math.max(tok, now), true
  return true
end

-- keep_token keeps the last token of a room without a record. It writes R at most once, since
-- a slot that moves refuses a key that was deleted.
local function keep_token()
  owns = not cover()
  if owns then call('SET', R, fmt('%d', tok), 'PXAT', fmt('%d', life(ms))) else call('DEL', R) end
  save_counter()
end

local function foreign_type(what, key)
  return redis.error_reply(fmt('LHFOREIGN the key of the %s holds a %s', what, call('TYPE', key).ok))
end

-- load reads R and C, and checks Z. If a part of the record was evicted or deleted, the
-- record starts again, with the remains of its token.
local function load()
  local c = pcall_('GET', C)
  if type(c) == 'table' and not match(c.err, '^WRONGTYPE') then return c end
  counter, counted = type(c) ~= 'table' and tonumber(match(c or '0', '^%d+$') or ''), false
  if counter and (counter >= 2 ^ 53 or C == H) then counter = nil end
  local anchor = pcall_('ZSCORE', Z, '#')
  if type(anchor) == 'table' then return foreign_type('queue', Z) end
  local s = pcall_('HGET', R, '#')
  if type(s) == 'string' then
    isrec = load_record(s) and anchor and true or false
    if isrec then return end
    tok = tonumber(match(s, '^(%d+) ') or 0)
    seq, closed, head, when, n, nx, used, shares = 0, 0, '-', 0, 0, 0, 0, 0
    ident, xtok, hexp, rexp, quiet, suspects = '-', 0, 0, 0, 0, 0
    taken_places = '0'
    call('DEL', Z)
    keep_token()
  elseif type(s) == 'table' then
    tok, owns = tonumber(pcall_('GET', R)), true
    if not tok then return foreign_type('token', R) end
  elseif call('EXISTS', R) == 1 then
    return foreign_type('token', R)
  end
end

-- open reads the room and its counter. It returns an error reply or nil.
local function open(h, r, z, c, id)
  H, R, Z, C, caller = h, r, z, c, id
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
  ms = math.floor(now / 1000)
  uncontended, foreign, isrec, owns, dirty = nil, nil, false, false, false
  tok, seq, lim, closed, head, when = 0, 0, 0, 0, '-', 0
  n, nx, used, shares, ident, xtok, hexp, rexp, quiet, suspects = 0, 0, 0, 0, '-', 0, 0, 0, 0, 0
  taken_places = '0'
  hv = pcall_('GET', H)
  if type(hv) == 'table' then return redis.error_reply('LHFOREIGN the key holds a ' .. call('TYPE', H).ok) end
  return load() or glance() or purge()
end
