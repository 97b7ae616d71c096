-- room/1_state.lua: the admission rule on Redis, which every general path shares: here
-- its state, then room/2_record.lua and room/3_rule.lua. They inherit nothing from the
-- stages before them.
--
-- The functions have the names, the order and the meaning of internal/room, where they are
-- pure and explained. Only differences are commented here. Times are milliseconds, tokens
-- and the clock microseconds, all of the server.
--
-- KEYS of one room, all in one slot:
--   H  holder key. "<id> <terms> <meta>", the uncontended form: one exclusive holder and
--      no waiters (the free path handles only this form). "*": R describes the room.
--      Anything else is another library's lock.
--   R  while H has the uncontended form or is absent: the last token, a plain
--      integer, which is the holder's if there is one. It outlives H.
--      Otherwise a hash: '#' the scalars, <id> a party, ~<id> the reason why a lease was
--      broken, !<address> up to which arrival a process is suspect. The free path's
--      INCR fails on the hash, and so finds a queue without a command of its own.
--   Z  one sorted set in three bands: insiders by expiry - BAND (below 0),
--      tickets and marks by expiry, the queue by rank + QUEUE. Its member '#'
--      keeps it from vanishing, and losing its expiry, while R is a hash.
local call, pcall_ = redis.call, redis.pcall
local fmt, match, sub = string.format, string.match, string.sub
local BAND, ANCHOR, QUEUE = 2 ^ 45, 2 ^ 49, 2 ^ 50
local BEHIND, SUSPICION, BATCH, DROPS, PURGE, SWEEPS = 2 ^ 46, 60000, 64, 16384, 512, 4
local AHEAD, SPARE, YOUNG = 86400000000, 1800000, 1800000000

local H, R, Z            -- keys of the room at hand
local now, ms            -- the server's clock
local hv                 -- value of H at the beginning of the call
local uncontended        -- the holder in H's uncontended form, if any
local foreign            -- remaining ms of another library's lock, if any
local isrec              -- R is a hash
local dirty              -- the scalars have changed
local tok, seq, lim, closed, head, when    -- as in room.Record
local n, nx, used, shares                  -- n, used, shares
local ident, xtok                          -- re-entrant owner and token of the exclusive side
local hexp, rexp                           -- when H expires; when R and Z expire
local caller
