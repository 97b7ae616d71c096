-- replicas.lua: what the server knows of its replicas.
--
-- KEYS  1 any key, by which a cluster finds the server
-- Returns INFO replication, or nothing where the user may not ask.
local text = redis.pcall('INFO', 'replication')
return type(text) == 'string' and text or false
