-- renew_uncontended.lua: renews leases that were uncontended at the last answer, with shorter
-- arguments than renew/1_free.lua. All keys are read by one command: a call of a command
-- takes about a third of a renewal.
--
-- KEYS  H of each room (room/1_state.lua)
-- ARGV  1 TTL in ms, then "<id> " for each
-- Returns the tokens, separated by commas, with an empty token for a lease that is not
--       there in the uncontended form.
local call, find, match, sub, ttl, tokens = redis.call, string.find, string.match, string.sub, ARGV[1], {}
local values = redis.pcall('MGET', unpack(KEYS))
for i = 1, #KEYS do
  local held, id = values[i], ARGV[i + 1]
  local token = held and find(held, id, 1, true) == 1 and match(sub(held, -18), '} (%d+)$')
  if token then call('PEXPIRE', KEYS[i], ttl, 'GT') end
  tokens[i] = token or ''
end
return table.concat(tokens, ',')
