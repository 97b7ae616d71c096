-- renew/2_common.lua: confirms grants and prolongs leases in rooms that are described
-- by a record, without the functions of renew/3_general.lua, whose definition alone
-- takes as long. Everything else goes on to the next stage, unchanged until then.
--
-- KEYS, ARGV, returns  as of renew/1_free.lua
-- Inherits  out, rest, words
-- Leaves    out, rest
local call, fmt, match, unsettled = redis.call, string.format, string.match, {}
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
local ms = math.floor(now / 1000)
for _, i in ipairs(rest) do
  local H, R, Z, a = KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1], 4 * i - 3
  local id, exp = string.sub(ARGV[a], 1, -2), ms + ARGV[a + 1]
  local record = words[i] == '*' and redis.pcall('HMGET', R, '#', id)
  local scalars, head, n, hexp, rexp, quiet, last =
    match(record and record[1] or '', '^(%d+ %d+ %d+ %d+ (%S+) %d+ (%d+) %d+ %d+ %d+ %S+ %d+) (%d+) (%d+) (%d+) (%d+ %d+)$')
  local party, mode, places, token =
    match(scalars and record[2] or '', '^[uc]( (%a) %d %d+ %d+ %d+ 0 %d+ (%S+) (%d+) .*)$')
  quiet = tonumber(quiet)
  if party and ms >= quiet then
    -- include ends.lua
  end
  -- A lease that would not end later, or that Z has lost, is not settled here.
  if party and ms < quiet and exp + 1800000 < tonumber(rexp) and
    redis.pcall('ZADD', Z, 'XX', 'GT', 'CH', fmt('%d', exp - 2 ^ 45), 'i' .. id) == 1 then
    local visit = match(ARGV[a + 3], ' (.+)')
    if visit then
      -- include visit.lua
      party = share(party, visit)
    end
    if exp > tonumber(hexp) then
      call('SET', H, '*', 'PXAT', fmt('%d', exp + 1))
      hexp = fmt('%d', exp)
    end
    call('HSET', R, id, 'c' .. party, '#', scalars .. ' ' .. hexp .. ' ' .. rexp .. ' ' .. fmt('%d', quiet) .. ' ' .. last)
    out[i] = { 3, tonumber(token), mode == 'x' and tonumber(n) or 1, 0, head ~= '-' and 1 or 0, now, places ~= '-' and places or nil }
  else
    unsettled[#unsettled + 1] = i
  end
end
if #unsettled == 0 then return out end
rest = unsettled
