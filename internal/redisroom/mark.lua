-- mark.lua: whether the server may have lost its data.
--
-- KEYS  the mark of the store
-- ARGV  1 the quarantine in ms to set a mark with if there is none; absent to
--         look only
-- Returns for how many ms more guarded requests are refused, -1 without a mark.
local t = redis.call('TIME')
local ms = math.floor((t[1] * 1000000 + t[2]) / 1000)
if ARGV[1] then redis.call('SET', KEYS[1], string.format('%d', ms + ARGV[1]), 'NX') end
local since = redis.call('GET', KEYS[1])
if not since then return -1 end
return math.max(0, since - ms)
