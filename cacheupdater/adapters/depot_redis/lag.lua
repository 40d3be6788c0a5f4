-- Where one partition stands, for people.
-- KEYS: the partition's record, its stream of touches, its stream of changes and misses (put.lua).
-- Returns `done`, the number after the last that was given, and how many packs are not finished: finished ones are gone.
local function whole(text)
  return text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text) or nil
end
local done = whole(redis.call('HGET', KEYS[1], 'done')) or 1
local last = whole(redis.call('HGET', KEYS[1], 'last')) or 0
local packs = redis.call('XLEN', KEYS[2]) + redis.call('XLEN', KEYS[3])
return { string.format('%.0f', done), string.format('%.0f', math.max(done, last + 1)), packs }
