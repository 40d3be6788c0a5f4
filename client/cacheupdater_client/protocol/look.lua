-- look: what a reader finds that may load. For each triple of KEYS (key, floor, lease).
-- ARGV: owner, lease ms, how old a mark of an absent row may be in us, how old a value may be in us (empty = any age),
--       1 = take the lease from whoever holds it.
-- Answers: the token of a load that begins now; then per key: state, value or false, ms until the lease expires.
-- States: 0 a value that is young enough, 1 the row is known to be absent, 2 the lease is yours, 3 somebody else holds it.
local FOUND, ABSENT, GRANTED, TAKEN = 0, 1, 2, 3
local LONGEST_MS = 60000   -- of a lease that we believe; a longer one, or one without an end, was not set by us
local owner, lease_ms, mark_age, value_age = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local by_force = ARGV[5] == '1'

local function is_young(floor, most)
  local age = floor and now - micros(floor)
  return age and age >= 0 and age <= most
end

local function held_for(lease)
  local holder = attempt('GET', lease)
  if not holder or holder == owner or by_force then return 0 end
  local left = call('PTTL', lease)
  return left <= LONGEST_MS and left or 0
end

local function look(key, floor, lease)
  local value, newest = call('GET', key), sound(attempt('GET', floor))
  if value and (not value_age or is_young(newest, value_age)) then return FOUND, value, 0 end
  if not value and newest and sub(newest, -3) == ABSENT_FORM and is_young(newest, mark_age) then return ABSENT, false, 0 end
  local left = held_for(lease)
  if left > 0 then return TAKEN, value, left end
  attempt('SET', lease, owner, 'PX', lease_ms)   -- without memory, or on a replica, there is no lease, and no reader fails
  return GRANTED, value, tonumber(lease_ms)
end

local answers = { string.format('%.0f', now) .. '000' }
for i = 1, #KEYS, 3 do
  local state, value, left = look(KEYS[i], KEYS[i + 1], KEYS[i + 2])
  answers[#answers + 1], answers[#answers + 2], answers[#answers + 3] = state, value, left
end
return answers
