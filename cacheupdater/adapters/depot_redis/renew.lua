-- Our session runs for ARGV[2] ms from now. One that had run out has lost its partitions in roster.lua.
-- ARGV[3]: the number of partitions, for a roster that was lost.
-- Returns the highest epoch, the number of partitions, all members, each owned partition with its owner, and when the roster
-- was made, by which every member knows a roster that was lost.
redis.call('HSET', roster, 'member:' .. me, string.format('%.0f %.0f', now + ARGV[2], ARGV[2]))
redis.call('HSETNX', roster, 'partitions', ARGV[3])
redis.call('HSETNX', roster, 'made', string.format('%.0f', now_us))
members[me] = true
local names, owned = {}, {}
for name in pairs(members) do
  names[#names + 1] = name
end
for partition, name in pairs(owners) do
  owned[#owned + 1] = partition
  owned[#owned + 1] = name
end
return { string.format('%.0f', epoch), redis.call('HGET', roster, 'partitions'), names, owned, redis.call('HGET', roster, 'made') }
