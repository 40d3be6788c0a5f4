-- Adds packs to the streams of partitions (docs/reference/wire.md): all of them, in order, or none.
-- Called by clients and by the service, and by any other producer. See streams.py for the names of the keys.
-- KEYS: for each partition three, in one slot: its record, its stream of touches, its stream of changes and misses.
-- ARGV: how many entries a stream may have, how many ms a touch may wait; then for each pack three: the number of its
-- partition among the KEYS, from 1; T for touches, K for changes and misses; the pack.
-- Returns how many packs of touches had to go for these. FULL: a stream of changes and misses has no room.
-- An entry's id is a number of our own: Redis' time in microseconds, or one more than the last number of the partition. So
-- numbers rise over both streams, and none comes twice when a Redis has lost its latest entries, or all.
local LAST_MAX = 4503599627370496 -- a record that says more (the year 2112) is not ours; beyond 2^53 Lua cannot count
local length, age = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local coming = {}
for at = 3, #ARGV, 3 do
  local stream = 3 * ARGV[at] - (ARGV[at + 1] == 'K' and 0 or 1)
  coming[stream] = (coming[stream] or 0) + 1
end
for stream, count in pairs(coming) do
  -- An empty stream takes any number: a producer that sends more at once than a stream may have would wait for ever.
  local there = stream % 3 == 0 and redis.call('XLEN', KEYS[stream]) or 0
  if there > 0 and there + count > length then
    return redis.error_reply('FULL ' .. KEYS[stream] .. ' has ' .. there .. ' packs of changes and misses')
  end
end

-- The entries come first: a Redis at its maxmemory refuses the first of them, and then nothing has been done.
local last = {}
for at = 3, #ARGV, 3 do
  local stream = 3 * ARGV[at] - (ARGV[at + 1] == 'K' and 0 or 1)
  local record = 3 * ARGV[at] - 2
  if not last[record] then
    local said = redis.call('HGET', KEYS[record], 'last')
    local number = said and #said <= 16 and string.find(said, '^%d+$') and tonumber(said) or 0
    last[record] = number < LAST_MAX and number or 0
  end
  last[record] = math.max(last[record] + 1, now)
  redis.call('XADD', KEYS[stream], string.format('%.0f-0', last[record]), 'pack', ARGV[at + 2])
end

-- Finished entries are gone already (commit.lua), so what is trimmed here was unread, or not finished.
local trimmed = 0
for record, number in pairs(last) do
  redis.call('HSET', KEYS[record], 'last', string.format('%.0f', number))
  if coming[record + 1] then
    local oldest = string.format('%.0f-0', now - age * 1000)
    local gone = redis.call('XTRIM', KEYS[record + 1], 'MINID', '~', oldest)
      + redis.call('XTRIM', KEYS[record + 1], 'MAXLEN', '~', length)
    if gone > 0 then redis.call('HINCRBY', KEYS[record], 'trimmed', gone) end
    trimmed = trimmed + gone
  end
end
return trimmed
