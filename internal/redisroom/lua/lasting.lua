-- lasting.lua: which keys never end by themselves.
--
-- KEYS  any, of one slot
-- Returns those that are there and have no expiry.
local lasting = {}
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) == -1 then lasting[#lasting + 1] = key end
end
return lasting
