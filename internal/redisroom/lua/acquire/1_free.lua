-- acquire/1_free.lua: acquires a lock. This stage grants a free mutex with two commands,
-- and defines no functions.
--
-- KEYS  H, R, Z of the room (room/1_state.lua); the store's mark if the request is
--       guarded, which is read only if the token is not in R
-- ARGV  1 "<id> <terms> <meta>", which is the holder key's value; the terms are
--         one word each: mode x|s, policy 0-3, weight, limit, wait ms, window
--         ms, delay ms, minimum token, notify address or -, identity of a
--         re-entrant owner or -
--       2 TTL in ms
--       3 the greatest token of a counter that may have fallen back or may end too
--         early: a token not above it is replaced by a seed
--       4 absent for a mutex; "general" for a request that does not fit the uncontended
--         form; "raise" to give an existing lease a token of now; "resize" to change only
--         the limit; "downgrade" for a request that only a holder may make
-- Returns the token, as an integer, for a free room, or {token, clock us} if the
-- counter was seeded; otherwise
--       {state, token, holds, position, next ms, clock us [, holder: id,
--       remaining ms, mode, weight, token, state, meta]}. With GRANTED and GONE a
--       position of 1 means that it was so before.
-- Leaves  how: ARGV[4]; held: the value of H, false if it is free, an error if it is not a
--         string, nil if the stage has not read it. This stage leaves no write.
local how, held = ARGV[4]
if not how then
  local call, pcall, h, r = redis.call, redis.pcall, KEYS[1], KEYS[2]
  -- With GET the reply is the old value, and costs no table for an OK.
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
    -- The mark must be checked; or there is a record, so there may be a queue.
    call('DEL', h)
    if refused then return refused end
  elseif type(held) == 'table' and not string.find(held.err, '^WRONGTYPE') then
    return held
  end
end
