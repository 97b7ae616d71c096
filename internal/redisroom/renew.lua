-- renew.lua, continued: the general path, room.Renew.
local function renew(id, ttl, wait, notify)
  local p = isrec and party(id)
  if p and p.state ~= 'w' then return confirm(p, ttl) end
  if p then
    refresh(p, wait, notify)
    return ask_(p, ttl) or reply(GONE)
  end
  local r, why = broken(id)
  if why then return r end
  hand_over()
  return reply(GONE)
end

for _, i in ipairs(rest) do
  local a = 4 * i - 3
  local id = sub(ARGV[a], 1, -2)
  out[i] = open(KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], id)
  if not out[i] then
    out[i] = renew(id, tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), ARGV[a + 3])
    save()
  end
end
return out
