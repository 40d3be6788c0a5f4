-- The first step of a new owner: from here on commits of older epochs are refused.
-- KEYS[1]: the partition's record. ARGV[1]: the new epoch.
-- Returns the epoch that holds now, which is higher if the roster was lost and the clock stepped back, and `done`.
local record, epoch = KEYS[1], ARGV[1]
local function whole(text)
  return text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text) or nil
end
redis.call('HDEL', record, '') -- as roster.lua: a Redis at its maxmemory must not stop us
local there = whole(redis.call('HGET', record, 'epoch'))
if there and there >= tonumber(epoch) then return { string.format('%.0f', there), '' } end
redis.call('HSET', record, 'epoch', epoch)
local done = redis.call('HGET', record, 'done')
return { epoch, whole(done) and done or '1' }
