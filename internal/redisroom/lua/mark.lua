-- mark.lua: detects whether the server may have lost its data.
--
-- KEYS  the mark of the store: "<since ms> <name>", or "for <whom>" while it is
--       reserved
-- ARGV  1 "look"
--       or 1 "reserve", 2 for whom, 3 for how many ms
--       or 1 "mark", 2 the quarantine in ms, 3 the name, 4 for whom it has to be
--       reserved, empty if it need not be
-- Returns {for how many ms more guarded requests are refused, the name}; without a
--       mark 1 if it is reserved for ARGV[2], 0 otherwise.
local call = redis.call
local t = call('TIME')
local ms = math.floor((t[1] * 1000000 + t[2]) / 1000)
local value = redis.pcall('GET', KEYS[1]) or ''
local since, name
if type(value) == 'string' then since, name = string.match(value, '^(%d+) ?(.*)$') end
if not since and (type(value) ~= 'string' or value ~= '' and not string.find(value, '^for ')) then
  return redis.error_reply('LHFOREIGN the key of the mark holds something else')
end
if not since and ARGV[1] == 'reserve' then
  local mine = 'for ' .. ARGV[2]
  if value ~= '' and value ~= mine then return 0 end
  call('SET', KEYS[1], mine, 'PX', ARGV[3])
  return 1
end
if not since and ARGV[1] == 'mark' and (ARGV[4] == '' or value == 'for ' .. ARGV[4]) then
  since, name = ms + ARGV[2], ARGV[3]
  call('SET', KEYS[1], string.format('%d %s', since, name))
end
if not since then return 0 end
return { math.max(0, since - ms), name }
