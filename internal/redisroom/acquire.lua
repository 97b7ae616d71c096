-- acquire.lua, continued: the general path, room.Acquire.
local ttl = tonumber(ARGV[2])
local id, mode, policy, weight, limit, wait, window, delay, min, notify, who, meta =
  match(ARGV[1], '^(%S+) (%a) (%d) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (.*)$')
weight, limit, wait, window = tonumber(weight), tonumber(limit), tonumber(wait), tonumber(window)
delay, min = tonumber(delay), tonumber(min)

local function check()
  if KEYS[4] and tok == 0 then
    local since = call('GET', KEYS[4])
    if not since then return redis.error_reply('LHAMNESIA the server carries no mark') end
    if tonumber(since) > ms then return redis.error_reply(fmt('LHAMNESIA the server is in quarantine for %d ms', since - ms)) end
  end
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

local function check_downgrade()
  if n > 1 then return redis.error_reply(fmt('LHMISMATCH held %d times by its owner, it cannot become shared', n)) end
  return check()
end

local function again(p)
  local downgrade = p.mode == 'x' and mode == 's'
  local err = downgrade and check_downgrade()
  if err then return err end
  if downgrade or p.notify ~= notify then
    general()
    if downgrade then
      p.mode, p.weight, p.ident = 's', weight, '-'
      nx, used, shares, lim, ident = 0, weight, shares + 1, limit, '-'
    end
    p.notify = notify
    store(p)
  end
  local before = p.state == 'c' and 1 or 0
  local out = confirm(p, ttl)
  out[4] = before
  if downgrade then hand_over() end
  return out
end

local function resize()
  if shares == 0 then return reply(GONE) end
  if lim == 0 or limit == 0 then
    return redis.error_reply(fmt('LHMISMATCH limit %d, but the limit in force is %d (0 is none)', limit, lim))
  end
  dirty, lim = true, limit
  hand_over()
  return reply(RESIZED)
end

-- known answers for an id that has been here before.
local function known()
  if simple then
    if simple.id ~= id then return end
    local p = simple
    if how == 'general' then general() end
    return again(p)
  end
  if not isrec then return end
  if marked('+' .. id) then return reply(GONE) end
  local out, why = broken(id)
  if why then return out end
  local p = party(id)
  if not p then return end
  if p.state ~= 'w' then return again(p) end
  refresh(p, math.max(wait, p.window), notify)
  out = ask_(p, ttl) or reply(GONE)
  return out[1] == QUEUED and glimpse(out) or out
end

local function newcomer()
  hand_over()
  local p = { id = id, state = '-', mode = mode, policy = policy, weight = weight, ttl = ttl, window = window,
    delay = delay, min = min, rank = 0, token = 0, notify = notify, ident = who, meta = meta }
  p.rank = rank(p)
  if mode == 's' then lim = limit end
  if admits(p) then
    enter(p, ms + ttl, 'c')
    return granted(p)
  end
  if wait == 0 then
    summon(p)
    return busy()
  end
  queue(p, ms + wait)
  if notify ~= '-' then call('ZREM', Z, '!' .. notify) end
  hint_head(first())
  return glimpse(queued(id, p.rank, summon(p)))
end

local err = open(KEYS[1], KEYS[2], KEYS[3], id)
if err then return err end
local out
if how == 'resize' then
  out = resize()
else
  out = known()
end
if not out then
  err = check()
  out = err or newcomer()
end
save()
return out
