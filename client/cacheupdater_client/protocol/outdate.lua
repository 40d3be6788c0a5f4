-- outdate: as invalidate, but the old value stays readable until a load replaces it, for at most hold ms.
-- KEYS: pairs (key, floor). ARGV: clock_step us, floor life ms, hold ms.
-- Answers per key: 1 the old value stays, 0 there is none, "-text" = failed: the value is removed.
local clock_step, floor_life, hold = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local KEPT, NONE = 1, 0
local stamp = string.format('%.0f', now) .. OUTDATED_FORM   -- above every load of the same microsecond

local function outdate(key, floor)
  local newest = sound(attempt('GET', floor))
  local ahead = newest and above(newest, stamp) and micros(newest) <= now + clock_step
  local set = attempt('SET', floor, ahead and newest or stamp, 'PX', floor_life)
  if set.err then
    call('UNLINK', key)   -- without a floor, a load that began earlier could renew the old value's life
    error(set.err, 0)
  end
  local left = call('PTTL', key)
  if left == -2 then return NONE end
  if left < 0 or left > hold then call('PEXPIRE', key, hold) end
  return KEPT
end

local answers = {}
for i = 1, #KEYS, 2 do
  answers[#answers + 1] = answer_of(outdate, KEYS[i], KEYS[i + 1])
end
return answers
