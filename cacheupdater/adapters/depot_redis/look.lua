-- The roster as it is, for people: nothing is removed or renewed, so whoever asks is no member.
-- KEYS[1]: the roster (roster.lua). Returns the number of partitions, and each owned partition with its living owner.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function runs(name)
  local till = string.match(redis.call('HGET', KEYS[1], 'member:' .. name) or '', '^(%d+) %d+$')
  return till and #till <= 16 and tonumber(till) > now
end
local owned = {}
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local partition = string.match(fields[i], '^owner:(%d+)$')
  local name = partition and string.match(fields[i + 1], '^%d+ (.+)$')
  if name and runs(name) then
    owned[#owned + 1] = partition
    owned[#owned + 1] = name
  end
end
return { redis.call('HGET', KEYS[1], 'partitions') or '', owned }
