-- look: what a reader finds that may load. For each triple of KEYS (key, floor, lease).
-- ARGV: owner, lease ms, how old a mark of an absent row may be in us, how old a value may be in us (empty = any age),
--       1 = take the lease from whoever holds it, 0 = take no lease.
-- Answers: the token of a load that begins now; then per key: state, value or false, ms until the lease expires, and the
--       value's age in ms (-1 = not known).
-- States: 0 a value that is young enough, 1 the row is known to be absent, 2 the lease is yours, 3 somebody else holds it.
local FOUND, ABSENT, GRANTED, TAKEN = 0, 1, 2, 3
local LONGEST_MS = 60000   -- of a lease that we believe; a longer one, or one without an end, was not set by us
local owner, lease_ms, mark_age, value_age = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local by_force, no_lease = ARGV[5] == '1', ARGV[5] == '0'

local function is_young(floor, most)
  local age = floor and now - micros(floor)
  return age and age >= 0 and age <= most
end

-- Whether the last load found no row.
local function is_mark(newest)
  local last = newest and sub(newest, -3)
  return last == ABSENT_FORM or last == DISPUTED_FORM
end

local function held_for(lease)
  local holder = attempt('GET', lease)
  if not holder or holder == owner or by_force then return 0 end
  local left = call('PTTL', lease)
  return left <= LONGEST_MS and left or 0
end

local function age_of(value, newest)
  return value and is_of_load(newest) and math.floor((now - micros(newest)) / 1000) or -1
end

local function may_do(value, newest)
  if not value or not value_age then return value end
  local last = newest and sub(newest, -3)
  return last ~= OUTDATED_FORM and last ~= FOREIGN_FORM and last ~= DISPUTED_FORM and is_young(newest, value_age)
end

-- GET has failed. A value of another type is somebody else's: no reader can read it, so it counts as none. Any other error ends the
-- script: the second call raises it under its own name.
local function of_another_type(key, reply)
  return not is_wrong_type(reply) and call('GET', key)
end

local function look(key, floor, lease)
  local value, newest = attempt('GET', key), sound(attempt('GET', floor))
  local foreign = type(value) == 'table'   -- beside it, a mark of an absent row is out of date
  if foreign then value = of_another_type(key, value) end
  local age = age_of(value, newest)
  if may_do(value, newest) then return FOUND, value, 0, age end
  if not (value or foreign) and is_mark(newest) and is_young(newest, mark_age) then
    return ABSENT, false, 0, age
  end
  local left = held_for(lease)
  if left > 0 or no_lease then return TAKEN, value, left, age end
  attempt('SET', lease, owner, 'PX', lease_ms)   -- without memory, or on a replica, there is no lease, and no reader fails
  return GRANTED, value, tonumber(lease_ms), age
end

local answers = { string.format('%.0f', now) .. '000' }
for i = 1, #KEYS, 3 do
  local state, value, left, age = look(KEYS[i], KEYS[i + 1], KEYS[i + 2])
  local at = #answers
  answers[at + 1], answers[at + 2], answers[at + 3], answers[at + 4] = state, value, left, age
end
return answers
