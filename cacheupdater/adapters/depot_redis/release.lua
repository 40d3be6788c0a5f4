-- Frees partitions where they are still ours under this epoch.
-- KEYS[1]: the roster (roster.lua). ARGV: our name, then each partition with its epoch.
for i = 2, #ARGV, 2 do
  local name = 'owner:' .. ARGV[i]
  if redis.call('HGET', KEYS[1], name) == ARGV[i + 1] .. ' ' .. ARGV[1] then redis.call('HDEL', KEYS[1], name) end
end
return 1
