-- lasting.lua: finds keys that have no expiry.
--
-- KEYS  any, of one slot
-- Returns the existing keys without an expiry.
local lasting = {}
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) == -1 then lasting[#lasting + 1] = key end
end
return lasting
