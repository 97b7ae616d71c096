-- lasting.lua: finds keys that have no expiry.
--
-- KEYS  any, of one slot
-- Returns those that exist and have no expiry.
local lasting = {}
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) == -1 then lasting[#lasting + 1] = key end
end
return lasting
