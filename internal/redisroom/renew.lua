-- renew.lua, continued: the general path, room.Renew.
-- The word of a lease whose token is to be raised is "+<token> <id> ", which no
-- holder key begins with: it comes here.
local function renew(id, ttl, wait, notify, token)
  local p = simple and simple.id == id and simple or isrec and party(id)
  if p and p.state ~= 'w' then
    if token then raise(p, token) end
    return confirm(p, ttl)
  end
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
  local token, id = match(ARGV[a], '^%+(%d+) (%S+) $')
  id = id or sub(ARGV[a], 1, -2)
  out[i] = open(KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], id)
  if not out[i] then
    out[i] = renew(id, tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), ARGV[a + 3], tonumber(token))
    save()
  end
end
return out
