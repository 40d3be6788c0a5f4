-- prolong: a load has failed, so the old value lives for one more ttl. For each triple of KEYS (key, floor, lease).
-- ARGV: owner (empty = no lease is asked for), ttl ms, fail_safe ms, pause ms, form (empty = nothing is foreign).
-- No value becomes older than ttl + fail_safe. A value whose age is unknown, whose row has changed since its load, or that is
-- foreign to the form gets no more time. The owner's lease stays for the pause, so that a failing source is asked for a key
-- once in a pause. Nothing is shortened, and nothing is made.
-- Answers per key: 1 the value has more time, 0 it has not, "-text" = failed.
local owner, ttl, fail_safe, pause = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local form = ARGV[5] ~= '' and ARGV[5] or nil

local function prolong(key, floor, lease)
  if owner ~= '' and attempt('GET', lease) == owner then call('PEXPIRE', lease, pause) end
  local newest, left = sound(attempt('GET', floor)), call('PTTL', key)
  if left < 0 or not is_of_load(newest) then return 0 end
  local age = (now - micros(newest)) / 1000
  local more = math.floor(math.min(ttl, ttl + fail_safe - age))
  if age < 0 or more <= left or is_foreign(key, form, newest) then return 0 end
  call('PEXPIRE', key, more)
  if call('PTTL', floor) < more then call('PEXPIRE', floor, more) end   -- without its floor the value would have no age
  return 1
end

local answers = {}
for i = 1, #KEYS, 3 do
  answers[#answers + 1] = answer_of(prolong, KEYS[i], KEYS[i + 1], KEYS[i + 2])
end
return answers
