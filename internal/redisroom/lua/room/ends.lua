-- room/ends.lua: looks when the first member of Z ends.
--
-- Included by  acquire/2_common.lua, release/2_common.lua, renew/2_common.lua and
--              room/2_record.lua, which have call, Z and head
-- Sets         quiet: to that time, to 2 ^ 49 if no member ends, or to 0 if a part is
--              missing: Z, or the head, so that the next waiter has to be hinted
local inside = tonumber(call('ZRANGE', Z, '0', '0', 'WITHSCORES')[2] or 0)
local outside = tonumber(call('ZRANGEBYSCORE', Z, '0', '+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2] or 0)
quiet = math.min(inside < 0 and inside + 2 ^ 45 or inside, outside)
if head ~= '-' and not call('ZSCORE', Z, 'q' .. head) then quiet = 0 end
