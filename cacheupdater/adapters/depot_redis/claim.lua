-- Makes us the owner of those of the partitions ARGV[3], ... that are free or ours already, each under a new epoch, if our
-- session runs.
-- ARGV[2]: no epoch may be less. Returns each gained partition with its epoch.
-- Epochs begin at Redis' time, so none comes twice after a Redis has lost the roster.
local gained = {}
if not members[me] then return gained end
for i = 3, #ARGV do
  local partition = ARGV[i]
  if not owners[partition] or owners[partition] == me then
    epoch = math.max(epoch + 1, now_us, tonumber(ARGV[2]))
    local said = string.format('%.0f', epoch)
    redis.call('HSET', roster, 'owner:' .. partition, said .. ' ' .. me, 'epoch', said)
    owners[partition] = me
    gained[#gained + 1] = partition
    gained[#gained + 1] = said
  end
end
return gained
