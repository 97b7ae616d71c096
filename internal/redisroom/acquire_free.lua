-- acquire.lua: asks to enter a room.
--
-- KEYS  H, R, Z of the room (room.lua); the store's mark if the request is
--       guarded, which is looked at only where the token is not known
-- ARGV  1 "<id> <meta> ", the holder key's value but for the token
--       2 TTL in ms
--       3 the rest of the request, one word each: mode x|s, policy 0-3,
--         weight, limit, wait ms, window ms, delay ms, minimum token, notify
--         address or -, identity of a re-entrant owner or -
--       4 present if the request is one that the first form cannot hold;
--         "resize" if it only changes the limit
-- Returns the token, as an integer, for a free room; otherwise
--       {state, token, holds, position, next ms, clock µs [, holder: id,
--       remaining ms, mode, weight, token, state, meta]}. With GRANTED and GONE
--       1 as the position tells that it was so before.
--
-- The free path: three commands, and nothing of room.lua is even defined.
if not ARGV[4] then
  local last = redis.pcall('GET', KEYS[2])
  if type(last) == 'string' then
    if redis.call('SET', KEYS[1], ARGV[1] .. last, 'NX', 'PX', ARGV[2]) then
      return redis.call('INCR', KEYS[2])
    end
  elseif not last and not KEYS[4] then
    -- The first token of a name is the server's clock: greater than any
    -- before it that a lost counter may have given.
    local t = redis.call('TIME')
    local us = string.format('%.0f', t[1] * 1000000 + t[2] - 1)
    if redis.call('SET', KEYS[1], ARGV[1] .. us, 'NX', 'PX', ARGV[2]) then
      redis.call('SET', KEYS[2], us, 'PX', 3600000)
      return redis.call('INCR', KEYS[2])
    end
  end
end
