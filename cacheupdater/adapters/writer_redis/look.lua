-- look: what a reader of a key finds. KEYS: key, floor. ARGV: the largest value to return, in bytes; 0: return no value.
-- Returns Redis' time, the key's type, its floor, and its value if that is wanted: a string, or a hash as a list. No value
-- leaves Redis that is larger than any value of ours, even if another program wrote it.
local key, floor, most = KEYS[1], KEYS[2], tonumber(ARGV[1])
local FLOOR_DIGITS = 20
local kind = redis.call('TYPE', key).ok
local newest = redis.pcall('GET', floor)
if type(newest) ~= 'string' or #newest > FLOOR_DIGITS then newest = false end

local value = false
if most > 0 and kind == 'string' then
  value = redis.call('GET', key)
  if value and #value > most then value = false end
elseif most > 0 and kind == 'hash' then
  value = redis.call('HGETALL', key)
  local size = 0
  for i = 1, #value do size = size + #value[i] end
  if size > most then value = false end
end
return { redis.call('TIME'), kind, newest, value }
