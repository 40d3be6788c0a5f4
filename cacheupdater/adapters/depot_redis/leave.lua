-- Our session ends, and all our partitions are free.
redis.call('HDEL', roster, 'member:' .. me)
for partition, name in pairs(owners) do
  if name == me then redis.call('HDEL', roster, 'owner:' .. partition) end
end
return 1
