-- replicas.lua: the server's state of its replicas.
--
-- KEYS  1 any key, by which a cluster finds the server
-- Returns INFO replication, or nil if the user may not ask.
local text = redis.pcall('INFO', 'replication')
return type(text) == 'string' and text or false
