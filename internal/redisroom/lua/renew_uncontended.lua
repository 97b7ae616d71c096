-- renew_uncontended.lua: renews leases that were uncontended at the last answer, with shorter
-- arguments than renew/1_free.lua. All keys are read by one command: a call of a command
-- takes about a third of a renewal.
--
-- KEYS  H, R of each room (room/1_state.lua)
-- ARGV  1 TTL in ms, 2 the least last token whose counter is sure to outlive the
--       leases, then "<id> " for each
-- Returns the tokens, separated by commas, with an empty token for a lease that is not
--       there in the uncontended form.
local call, find, ttl, oldest, tokens = redis.call, string.find, ARGV[1], tonumber(ARGV[2]), {}
local values = redis.pcall('MGET', unpack(KEYS))
for i = 1, #KEYS / 2 do
  local held, token = values[2 * i - 1], values[2 * i]
  local number = held and token and find(held, ARGV[i + 2], 1, true) == 1 and tonumber(token)
  if number then
    call('PEXPIRE', KEYS[2 * i - 1], ttl, 'GT')
    if number <= oldest then call('PEXPIRE', KEYS[2 * i], 3600000 + ttl, 'GT') end
  end
  tokens[i] = number and token or ''
end
return table.concat(tokens, ',')
