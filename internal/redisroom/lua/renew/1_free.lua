-- renew/1_free.lua: prolongs leases, confirms grants and keeps tickets alive. This stage
-- prolongs uncontended leases.
--
-- KEYS  H, R, Z of each room (room/1_state.lua)
-- ARGV  four for each: "<id> ", TTL in ms, life of a ticket in ms, notify
--       address or -, followed by " <visit>" if there is one; then the least last token
--       whose counter is sure to outlive the leases
-- Returns for each the token, as a string, if the lease was uncontended and is
--       prolonged, otherwise a reply as of acquire/1_free.lua; with GONE of a
--       broken lease the reason stands at 7.
-- Leaves  out: the answers so far; rest: the numbers of the rooms without an answer, whose
--         keys are unchanged
local out, rest = {}, {}
for i = 1, #KEYS / 3 do
  local h, r, a = KEYS[3 * i - 2], KEYS[3 * i - 1], 4 * i - 3
  local held = redis.pcall('GET', h)
  local token = type(held) == 'string' and string.find(held, ARGV[a], 1, true) == 1 and redis.pcall('GET', r)
  if type(token) == 'string' and tonumber(token) then
    local ttl = ARGV[a + 1]
    redis.call('PEXPIRE', h, ttl, 'GT')
    if token - ARGV[#ARGV] <= 0 then redis.call('PEXPIRE', r, 3600000 + ttl, 'GT') end
    local visit = string.match(ARGV[a + 3], ' (.+)')
    if visit and string.find(held, ' {"v":"', 1, true) then
      -- include visit.lua
      redis.call('SET', h, share(held, visit), 'KEEPTTL')
    end
    out[i] = token
  else
    rest[#rest + 1] = i
  end
end
if #rest == 0 then return out end
