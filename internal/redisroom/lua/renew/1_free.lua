-- renew/1_free.lua: prolongs leases, confirms grants and keeps tickets alive. This stage
-- prolongs uncontended leases.
--
-- KEYS  H, R, Z, C of each room (room/1_state.lua)
-- ARGV  four for each: "<id> ", TTL in ms, life of a ticket in ms, notify
--       address or -, followed by " <visit>" if there is one
-- Returns for each the token, as a string, if the lease was uncontended and is
--       prolonged, otherwise a reply as of acquire/1_free.lua; with GONE of a
--       broken lease the reason stands at 7.
-- Leaves  out: the answers so far; rest: the numbers of the rooms without an answer, whose
--         keys are unchanged; words: the values of H that were read
local out, rest, words = {}, {}, {}
for i = 1, #KEYS / 4 do
  local h, a = KEYS[4 * i - 3], 4 * i - 3
  local held = redis.pcall('GET', h)
  local token = type(held) == 'string' and string.find(held, ARGV[a], 1, true) == 1 and
    string.match(string.sub(held, -18), '} (%d+)$')
  if token then
    redis.call('PEXPIRE', h, ARGV[a + 1], 'GT')
    local visit = string.match(ARGV[a + 3], ' (.+)')
    if visit and string.find(held, ' {"v":"', 1, true) then
      -- include visit.lua
      redis.call('SET', h, share(held, visit), 'KEEPTTL')
    end
    out[i] = token
  else
    rest[#rest + 1], words[i] = i, held
  end
end
if #rest == 0 then return out end
