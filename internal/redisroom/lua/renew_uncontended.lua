-- renew_uncontended.lua: prolongs leases that were uncontended at the last answer, with shorter
-- arguments than renew/1_free.lua, which renews the others.
--
-- KEYS  H, R of each room (room/1_state.lua)
-- ARGV  1 TTL in ms, 2 the least last token whose counter is sure to outlive the
--       leases, then "<id> " for each
-- Returns for each the token, as a string, or nothing if the lease is not there in the
--       uncontended form.
local call, pcall, ttl, out = redis.call, redis.pcall, ARGV[1], {}
for i = 1, #KEYS / 2 do
  local h, r, id = KEYS[2 * i - 1], KEYS[2 * i], ARGV[i + 2]
  local v = #id == 27 and pcall('GETRANGE', h, '0', '26') or pcall('GET', h)
  local token = (v == id or type(v) == 'string' and string.find(v, id, 1, true) == 1) and pcall('GET', r)
  if type(token) == 'string' and tonumber(token) then
    call('PEXPIRE', h, ttl, 'GT')
    if token - ARGV[2] <= 0 then call('PEXPIRE', r, 3600000 + ttl, 'GT') end
    out[i] = token
  else
    out[i] = false
  end
end
return out
