-- acquire/3_general.lua: settles every request, by the rule: room.Acquire.
--
-- KEYS, ARGV, returns  as of acquire/1_free.lua
-- Inherits  how; room/1_state.lua, room/2_record.lua and room/3_rule.lua, with open,
--           save and reply
local ttl = tonumber(ARGV[2])
local id, mode, policy, weight, limit, wait, window, delay, min, notify, who, meta =
  match(ARGV[1], '^(%S+) (%a) (%d) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (.*)$')
weight, limit, wait, window = tonumber(weight), tonumber(limit), tonumber(wait), tonumber(window)
delay, min = tonumber(delay), tonumber(min)

-- check_mark refuses a guarded request unless the mark is there, and its quarantine over.
-- G then spares later requests that look: a loss of data removes it, too.
local function check_mark()
  if KEYS[6] and tok == 0 and call('EXISTS', KEYS[6]) == 0 then
    local since = pcall_('GET', KEYS[5]) or 'for'
    if type(since) == 'string' and match(since, '^for') then since = nil end
    if not since then return redis.error_reply('LHAMNESIA the server carries no mark') end
    since = type(since) == 'string' and tonumber(match(since, '^%d+') or '')
    if not since then return redis.error_reply('LHFOREIGN the key of the mark holds something else') end
    if since > ms then return redis.error_reply(fmt('LHAMNESIA the server is in quarantine for %d ms', since - ms)) end
    call('SET', KEYS[6], '1', 'PX', 60000)
  end
end

local function check()
  if not counter and nx == 0 and (mode == 's' or n == 0) then return redis.error_reply('LHFOREIGN the key of the counter holds something else') end
  if min > now + AHEAD then
    return redis.error_reply(fmt('LHINVALID minimum token %d is more than 24 h ahead of the server clock (%d)', min, now))
  end
  if mode == 's' and shares > 0 and lim ~= limit then
    return redis.error_reply(fmt('LHMISMATCH limit %d, but the limit in force is %d', limit, lim))
  end
  if limit > 0 and weight > limit then
    return redis.error_reply(fmt('LHINVALID weight %d is above the limit %d', weight, limit))
  end
end

local function at_odds()
  if who == '-' or n == 0 then return end
  local own = nx > 0 and mode == 's' and ident == who
  if nx == 0 and mode == 'x' then
    local ids = call('ZRANGEBYSCORE', Z, '-inf', '(0')
    for i = 1, #ids do
      local p = party(sub(ids[i], 2))
      own = own or p and p.ident == who
    end
  end
  if own then
    return redis.error_reply('LHMISMATCH its owner is inside exclusively and asks to share, or the other way round')
  end
end

local function check_downgrade()
  if n > 1 then return redis.error_reply(fmt('LHMISMATCH held %d times by its owner, it cannot become shared', n)) end
  return check()
end

local function again(p)
  local downgrade = p.mode == 'x' and mode == 's'
  local err = downgrade and check_downgrade()
  if err then return err end
  local meta_ = with_visit(p, common(visit_of(p.meta), visit_of(meta)))
  if downgrade or p.notify ~= notify or p.meta ~= meta_ then
    general()
    if downgrade then
      p.mode, p.weight = 's', weight
      nx, shares, lim, ident = 0, shares + 1, limit, '-'
      take(p)
    end
    p.notify, p.meta = notify, meta_
    store(p)
  end
  if how == 'raise' then raise(p, next_token(0)) end
  local before = p.state == 'c' and 1 or 0
  local out = confirm(p, ttl)
  out[4] = before
  if downgrade then hand_over() end
  return out
end

local function resize()
  if shares == 0 or marked('+' .. id) then
    hand_over()
    return reply(GONE)
  end
  if lim == 0 or limit == 0 then
    return redis.error_reply(fmt('LHMISMATCH limit %d, but the limit in force is %d (0 is none)', limit, lim))
  end
  dirty, lim = true, limit
  hand_over()
  return reply(RESIZED)
end

-- known answers for an id that has been here before.
local function known()
  if uncontended then return uncontended.id == id and again(uncontended) or nil end
  if not isrec then return end
  local out, why = broken(id)
  if why or marked('+' .. id) then
    hand_over()
    return marked('+' .. id) and reply(GONE) or out
  end
  local p = party(id)
  if not p then return end
  if p.state ~= 'w' then return again(p) end
  if how == 'downgrade' then return end
  belong(p, visit_of(meta))
  refresh(p, math.max(wait, p.window), notify)
  out = ask_(p, ttl) or reply(GONE)
  return out[1] == QUEUED and with_holder(out) or out
end

local function newcomer()
  hand_over()
  local p = { id = id, state = '-', mode = mode, policy = policy, weight = weight, before = 0, window = window,
    delay = delay, min = min, token = 0, notify = notify, ident = who, meta = meta }
  p.rank = rank(p)
  if mode == 's' then lim = limit end
  if admits(p) then
    enter(p, ms + ttl, 'c')
    return granted(p)
  end
  if wait == 0 then
    ping_head(p)
    return busy()
  end
  queue(p, ms + wait)
  trust(notify)
  hint_head(first())
  return with_holder(queued(id, p.rank, ping_head(p)))
end

-- A full server refuses the request before the first write, and a replica in any case.
local full = (not how or how == 'general') and pcall_('SETRANGE', KEYS[1], '0', '')
if type(full) == 'table' and not match(full.err, '^WRONGTYPE') then return full end
local err = open(KEYS[1], KEYS[2], KEYS[3], KEYS[4], id)
if err then return err end
local out
if how == 'resize' then
  out = resize()
else
  out = known()
end
if not out and how == 'downgrade' then
  hand_over()
  out = reply(GONE)
end
if not out then
  err = check_mark() or check() or at_odds()
  out = err or newcomer()
end
save()
return out
