-- Says which partitions are still ours under these epochs: 1 or 0 for each, in order; all 0 if our session does not run.
-- Called before each commit, so it reads only what it needs. What happens after it, the epoch in commit.lua decides.
-- KEYS[1]: the roster (roster.lua). ARGV: our name, then each partition with its epoch.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local till = string.match(redis.call('HGET', KEYS[1], 'member:' .. ARGV[1]) or '', '^(%d+) %d+$')
local runs = till and #till <= 16 and tonumber(till) > now
local said = {}
for i = 2, #ARGV, 2 do
  local ours = ARGV[i + 1] .. ' ' .. ARGV[1]
  said[#said + 1] = runs and redis.call('HGET', KEYS[1], 'owner:' .. ARGV[i]) == ours and 1 or 0
end
return said
