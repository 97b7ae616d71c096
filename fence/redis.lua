-- Raises the fence of a resource to a claim and then runs the caller's part, in one
-- step; or refuses, without an effect.
--
-- KEYS[1]  the fence: a hash of token and owner
-- KEYS[2…] the caller's
-- ARGV[1]  token
-- ARGV[2]  owner
-- ARGV[3…] the caller's
-- Returns {1, the result of the caller's part}, or {0, greatest token, its owner},
-- or the error that the caller's part returns.
-- Several values of the caller's part are a list.

local function body(KEYS, ARGV)
-- BODY
end

local function after(list, n)
	local rest = {}
	for i = n + 1, #list do
		rest[i - n] = list[i]
	end
	return rest
end

local function one(...)
	if select('#', ...) > 1 then
		return {...}
	end
	return (...)
end

local token, owner = tonumber(ARGV[1]), ARGV[2]
local seen = redis.call('HMGET', KEYS[1], 'token', 'owner')
local greatest = tonumber(seen[1] or 0)
if greatest > token or greatest == token and seen[2] ~= owner then
	return {0, seen[1], seen[2]}
end
if greatest < token then
	redis.call('HSET', KEYS[1], 'token', ARGV[1], 'owner', owner) -- the text: a number would be rounded
end
local result = one(body(after(KEYS, 1), after(ARGV, 2)))
if type(result) == 'table' and result.err then
	return result -- within a list, clients would take it for a value
end
return {1, result}
