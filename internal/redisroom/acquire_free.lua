-- acquire.lua: asks to enter a room.
--
-- KEYS  H, R, Z of the room (room.lua); the store's mark if the request is
--       guarded, which is looked at only where the token is not known
-- ARGV  1 "<id> <terms> <meta>", which is the holder key's value; the terms are
--         one word each: mode x|s, policy 0-3, weight, limit, wait ms, window
--         ms, delay ms, minimum token, notify address or -, identity of a
--         re-entrant owner or -
--       2 TTL in ms
--       3 absent for a mutex; "seed" to have the counter seeded anew; "general"
--         for a request that the first form cannot hold; "resize" for one that
--         only changes the limit
-- Returns the token, as an integer, for a free room; otherwise
--       {state, token, holds, position, next ms, clock µs [, holder: id,
--       remaining ms, mode, weight, token, state, meta]}. With GRANTED and GONE
--       1 as the position tells that it was so before.
--
-- The free path: two commands, and nothing of the general path is even defined.
local how, held = ARGV[3]
if not how or how == 'seed' then
  local call, pcall, h, r = redis.call, redis.pcall, KEYS[1], KEYS[2]
  -- With GET what comes back is what was there, and costs no table for an OK.
  held = pcall('SET', h, ARGV[1], 'NX', 'PX', ARGV[2], 'GET')
  if not held then
    local token = pcall('INCR', r)
    if type(token) == 'number' then
      if token > 1 and not how then return token end
      if token > 1 or not KEYS[4] then
        -- A seed is the server's clock: greater than any token before it that a
        -- lost counter may have given.
        local t = call('TIME')
        token = math.max(token, t[1] * 1000000 + t[2])
        call('SET', r, token, 'PX', 3600000 + ARGV[2])
        return token
      end
      call('DEL', r)
    end
    -- The mark is to be seen; or there is a record, so there may be a queue.
    call('DEL', h)
  end
end
