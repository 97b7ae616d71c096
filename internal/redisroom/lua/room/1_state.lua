-- room/1_state.lua: the admission rule on Redis, which every general path shares: here
-- its state, then room/2_record.lua and room/3_rule.lua. They inherit nothing from the
-- stages before them.
--
-- The functions have the names, the order and the meaning of internal/room, where they are
-- pure and explained. Only differences are commented here. Times are milliseconds, tokens
-- and the clock microseconds, all of the server.
--
-- KEYS of one room, all in one slot:
--   H  holder key. "<id> <terms> <meta> <token>", the uncontended form: one exclusive
--      holder and no waiters (the free path handles only this form); the token has 16
--      digits at most. "*": R describes the room. Anything else is another library's lock.
--   R  usually absent while H has the uncontended form or is absent. Otherwise a hash: the
--      field '#' has the scalars, <id> a party, ~<id> the reason why a lease was broken. The
--      field +<id> forbids an id. !<address> makes requests of a process suspect: all
--      up to this arrival. A free room keeps its last token in R if the counter is below it.
--   Z  one sorted set in three bands: insiders by expiry - BAND (below 0),
--      tickets and marks by expiry, the queue by rank + QUEUE. Its member '#'
--      keeps it from vanishing, and losing its expiry, while R is a hash.
--   C  the counter of all rooms of the slot: the last token that no room keeps itself. It is
--      ahead of the server's clock after a raise, by at most LEAD, or a step of the clock.
local call, pcall_ = redis.call, redis.pcall
local fmt, match, sub = string.format, string.match, string.sub
local BAND, ANCHOR, QUEUE = 2 ^ 45, '562949953421312', '1125899906842624' -- 2 ^ 49, 2 ^ 50
local BEHIND, SUSPICION, PURGE, SWEEPS = 2 ^ 46, 60000, 512, 4
local AHEAD, SPARE, LEAD = 86400000000, 1800000, 1000000

local H, R, Z, C         -- keys of the room at hand
local now, ms            -- the server's clock
local hv                 -- value of H at the beginning of the call
local uncontended        -- the holder in H's uncontended form, if any
local foreign            -- remaining ms of another library's lock, if any
local isrec, owns        -- R is a hash; R is a token
local dirty              -- the scalars have changed
local tok, seq, lim, closed, head, when    -- as in room.Record
local n, nx, used, shares                  -- n, used, shares
local taken_places                         -- as in room/places.lua
local counter, counted                     -- value of C, nil if it is no number; whether it has changed
local ident, xtok                          -- re-entrant owner and token of the exclusive side
local hexp, rexp                           -- when H expires; when R and Z expire
local quiet                                -- no member of Z ends before it; see room/ends.lua
local suspects                             -- how many processes are suspect
local caller
