-- room/visit.lua: to which visits a lease belongs after a renewal.
--
-- KEYS, ARGV  none: share reads only its arguments
-- Included by  renew/1_free.lua, renew/2_common.lua and uncontended.lua; the general
--              paths have with_visit and common of room/2_record.lua
--
-- share returns a party's words after a renewal by a visit: the lease then belongs to the
-- common path of that visit and its previous visits (common of internal/room).
local function share(words, visit)
  return (string.gsub(words, ' {"v":"([^"]+)",', function(path)
    while path ~= '' and string.sub(visit .. '/', 1, #path + 1) ~= path .. '/' do
      path = string.match(path, '^(.*)/') or ''
    end
    return path == '' and ' {' or ' {"v":"' .. path .. '",'
  end, 1))
end
