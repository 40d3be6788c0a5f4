-- Finishes all packs of one partition before a number, whoever owns the partition: for an operator.
-- KEYS: the partition's record, its stream of touches, its stream of changes and misses (put.lua). ARGV[1]: the number.
-- Packs that come later have higher numbers, and stay. An owner's commit moves neither cursor back (commit.lua).
local record = KEYS[1]
local function whole(text)
  return text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text) or 0
end
redis.call('HDEL', record, '') -- as roster.lua: a Redis at its maxmemory must let us make room
for _, name in ipairs({ 'scan', 'done' }) do
  local moved = math.max(tonumber(ARGV[1]), whole(redis.call('HGET', record, name)))
  redis.call('HSET', record, name, string.format('%.0f', moved))
end
for stream = 2, 3 do
  redis.call('XTRIM', KEYS[stream], 'MINID', ARGV[1] .. '-0')
end
return 1
