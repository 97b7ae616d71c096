-- acquire/1_free.lua: acquires a lock. This stage grants a free mutex with three commands,
-- and defines no functions.
--
-- KEYS  H, R, Z, C of the room (room/1_state.lua); if the request is guarded also M, the
--       store's mark, and G, which is there while M need not be read
-- ARGV  1 "<id> <terms> <meta>"; the terms are one word each: mode x|s, policy 0-3,
--         weight, limit, wait ms, window ms, delay ms, minimum token, notify address or -,
--         identity of a re-entrant owner or -
--       2 TTL in ms
--       3 the greatest token of a counter that may have fallen back: a token not above it
--         is replaced by a seed
--       4 absent for a mutex; "general" for a request that does not fit the uncontended
--         form; "raise" to give an existing lease a token of now; "resize" to change only
--         the limit; "downgrade" for a request that only a holder may make
-- Returns the token, as an integer, for a free room, or {token, clock us} if the
-- counter was seeded; otherwise
--       {state, token, holds, position, next ms, clock us [, holder: id,
--       remaining ms, mode, weight, places, token, state, meta]}. With GRANTED and GONE a
--       position of 1 means that it was so before. With GRANTED a next of 1 means that a
--       waiter is queued, and the places stand at 7, if the holder has any.
-- Leaves  how: ARGV[4]. This stage leaves no write.
local how = ARGV[4]
if not how then
  local call, h, r, c, g = redis.call, KEYS[1], KEYS[2], KEYS[4], KEYS[6]
  -- EXISTS counts a key as often as it is named.
  local free = g and call('EXISTS', h, r, g, g, g) == 3 or not g and call('EXISTS', h, r) == 0
  local token, now = free and redis.pcall('INCR', c), nil
  if type(token) == 'table' and string.find(token.err, '^OOM') then return token end
  if type(token) == 'number' then -- otherwise acquire/3_general.lua says what is wrong
    if token >= 2 ^ 53 or token <= 0 then
      call('DECR', c)
      return redis.error_reply('LHFOREIGN the key of the counter holds something else')
    end
    if token - ARGV[3] <= 0 then
      -- A seed is the server's clock: greater than any token before it that a lost counter
      -- may have given.
      local t = redis.pcall('TIME')
      if not t[1] then
        if token == 1 then call('DEL', c) end -- it would not end
        return t
      end
      now = t[1] * 1000000 + t[2]
      token = math.max(token, now)
      call('SET', c, token, 'PXAT', math.floor(token / 1000) + 3600000)
    end
    -- With GET the reply is the old value, and costs no table for an OK.
    call('SET', h, string.format('%s %d', ARGV[1], token), 'PX', ARGV[2], 'GET')
    return now and { token, now } or token
  end
end
