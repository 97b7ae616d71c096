-- acquire/1_free.lua: asks to enter a room. This stage grants a mutex that is free
-- with two commands, and defines no functions.
--
-- KEYS  H, R, Z of the room (room/1_state.lua); the store's mark if the request is
--       guarded, which is looked at only where the token is not known
-- ARGV  1 "<id> <terms> <meta>", which is the holder key's value; the terms are
--         one word each: mode x|s, policy 0-3, weight, limit, wait ms, window
--         ms, delay ms, minimum token, notify address or -, identity of a
--         re-entrant owner or -
--       2 TTL in ms
--       3 the least token that tells nothing of a counter that has fallen back or
--         ends too early: one that is not above it is replaced by a seed
--       4 absent for a mutex; "general" for a request that the uncontended form cannot
--         hold; "raise" to have a lease that is there given a token of now; "resize"
--         for one that only changes the limit, "downgrade" for one that only a
--         holder may make
-- Returns the token, as an integer, for a free room, or {token, clock us} if the
-- counter was seeded; otherwise
--       {state, token, holds, position, next ms, clock us [, holder: id,
--       remaining ms, mode, weight, token, state, meta]}. With GRANTED and GONE
--       1 as the position tells that it was so before.
-- Leaves  how: ARGV[4]; held: what H holds, false if it is free, an error if it is
--         no string, nil if the stage has not read it. Nothing is written.
local how, held = ARGV[4]
if not how then
  local call, pcall, h, r = redis.call, redis.pcall, KEYS[1], KEYS[2]
  -- With GET what comes back is what was there, and costs no table for an OK.
  held = pcall('SET', h, ARGV[1], 'NX', 'PX', ARGV[2], 'GET')
  if not held then
    local token, refused = pcall('INCR', r), nil
    if type(token) == 'number' then
      if token - ARGV[3] > 0 then return token end
      if token > 1 or not KEYS[4] then
        -- A seed is the server's clock: greater than any token before it that a
        -- lost counter may have given.
        local t = pcall('TIME')
        if t[1] then
          -- include life.lua
          local now = t[1] * 1000000 + t[2]
          token = math.max(token, now)
          call('SET', r, token, 'PX', life(token, math.floor(now / 1000), ARGV[2]))
          return { token, now }
        end
        refused = t
      end
      if token == 1 then call('DEL', r) end
    end
    -- The mark is to be seen; or there is a record, so there may be a queue.
    call('DEL', h)
    if refused then return refused end
  elseif type(held) == 'table' and not string.find(held.err, '^WRONGTYPE') then
    return held
  end
end
