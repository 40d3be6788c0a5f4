-- One call about the marks and the turn of a feed; called by feed_marks_redis.py.
-- KEYS[1]: a hash with the owner of the turn, its end, and the marks, each under `mark:` and its name.
-- ARGV: the caller, the length of its turn in ms (0: gives it up), the longest turn in ms, then names and values of marks to keep.
-- The end is Redis' own time in ms. Returns 0 if another has the turn, else 1 and, if no marks were given, all fields.
-- Any program that may write to this Redis can write anything here. An end that no reader would have written counts as passed.
local record, caller, length = KEYS[1], ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kind = redis.call('TYPE', record).ok
if kind ~= 'hash' and kind ~= 'none' then return redis.error_reply('FOREIGN this key is no hash') end

local owner, till = unpack(redis.call('HMGET', record, 'owner', 'until'))
local ends = till and string.find(till, '^%d%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?$') and tonumber(till) or 0
-- a clock that has stepped back must not make a turn longer than turns are
local held = owner and owner ~= caller and ends > now and ends <= now + tonumber(ARGV[3])
if held then return { 0 } end
if length == 0 then
  redis.call('HDEL', record, 'owner', 'until')
  return { 1 }
end
for at = 4, #ARGV, 2 do redis.call('HSET', record, 'mark:' .. ARGV[at], ARGV[at + 1]) end
redis.call('HSET', record, 'owner', caller, 'until', string.format('%.0f', now + length))
if #ARGV > 3 then return { 1 } end
return { 1, unpack(redis.call('HGETALL', record)) }
