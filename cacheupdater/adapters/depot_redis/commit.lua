-- Moves the cursors of one partition, if the epoch is still its owner's, and removes finished packs.
-- KEYS: the partition's record, its stream of touches, its stream of changes and misses (put.lua).
-- ARGV: epoch, scan, done, then the numbers of packs behind `done` that are finished too.
-- Returns how many unread packs trimming has taken since the last commit; -1: the epoch is not the owner's; -2: the record is
-- gone, so this Redis has lost the partition.
-- The time of one call is bounded by the length of the streams, which put.lua keeps.
local TOGETHER = 500 -- numbers in one XDEL: Lua passes no more than some thousands
local record = KEYS[1]
local function whole(text)
  return text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text) or 0
end
redis.call('HDEL', record, '') -- as roster.lua: what has come at last frees memory
local epoch = redis.call('HGET', record, 'epoch')
if not epoch then return -2 end
if epoch ~= ARGV[1] then return -1 end

local scan = math.max(tonumber(ARGV[2]), whole(redis.call('HGET', record, 'scan')))
local done = math.max(tonumber(ARGV[3]), whole(redis.call('HGET', record, 'done')))
redis.call('HSET', record, 'scan', string.format('%.0f', scan), 'done', string.format('%.0f', done))
for stream = 2, 3 do
  redis.call('XTRIM', KEYS[stream], 'MINID', string.format('%.0f-0', done))
  for first = 4, #ARGV, TOGETHER do
    redis.call('XDEL', KEYS[stream], unpack(ARGV, first, math.min(first + TOGETHER - 1, #ARGV)))
  end
end
local trimmed = whole(redis.call('HGET', record, 'trimmed'))
if trimmed > 0 then redis.call('HDEL', record, 'trimmed') end
return trimmed
