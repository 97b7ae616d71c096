-- renew/3_general.lua: settles every renewal, by the rule: room.Renew.
--
-- KEYS, ARGV, returns  as of renew/1_free.lua
-- Inherits  out, rest; room/1_state.lua, room/2_record.lua and room/3_rule.lua, with
--           open, save and reply
--
-- The word of a lease whose token is to be raised is "+<token> <id> ", or begins with
-- "=" if it is to be levelled. No holder key begins so: it comes here, also if the lease
-- is uncontended, and is then answered as renew/1_free.lua does.
local function renew(id, ttl, wait, notify, visit, how, token)
  local p = uncontended and uncontended.id == id and uncontended or isrec and party(id)
  if p and p.state ~= 'w' then
    if visit then belong(p, common(visit_of(p.meta), visit)) end
    if token then raise(p, token, how == '=') end
    local out = confirm(p, ttl)
    return uncontended and token and fmt('%d', out[2]) or out
  end
  if p then
    if visit then belong(p, visit) end
    refresh(p, wait, notify)
    return ask_(p, ttl) or reply(GONE)
  end
  local r = broken(id)
  hand_over()
  return r
end

for _, i in ipairs(rest) do
  local a = 4 * i - 3
  local how, token, id = match(ARGV[a], '^([+=])(%d+) (%S+) $')
  id = id or sub(ARGV[a], 1, -2)
  local notify, visit = match(ARGV[a + 3], '^(%S+) ?(%S*)$')
  out[i] = open(KEYS[a], KEYS[a + 1], KEYS[a + 2], KEYS[a + 3], id)
  if not out[i] then
    out[i] = renew(id, tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), notify, visit ~= '' and visit, how, tonumber(token))
    save()
  end
end
return out
