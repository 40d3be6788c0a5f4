-- invalidate and write_through: for each pair of KEYS (key, floor).
-- ARGV: hold_off us, clock_step us, least floor life ms, forms, marks;
--       for write_through (one key) also: since, load_age us, kind, ttl ms, value or fields.
-- forms: empty = an application's call, which removes any value. An updater sends one letter a key: a value that is
-- foreign to this form stays; - = any value is removed.
-- marks: empty, or one letter a key: 1 = a value stays, too, if no load of an updater has written it.
-- Answers per key: 1 value set, 0 removed, -2 foreign: left alone, -3 spared: by its mark, "-text" = failed.
local hold_off, clock_step, floor_life, forms, marks = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local since, load_age, kind, ttl = ARGV[6], tonumber(ARGV[7]), ARGV[8], ARGV[9]
local SET, REMOVED, SPARED = 1, 0, -3
local stamp = string.format('%.0f', now + hold_off) .. '999'   -- above every load of the same microsecond

-- A token proves nothing if it comes from another clock, or if it is so old that a floor above it may have expired.
local function may_set(newest)
  if not since then return false end
  local age = now - micros(since)
  return age >= 0 and age <= load_age and not (newest and (newest == since or above(newest, since)))
end

-- Why a value stays: the answer for its key. Nil if it goes.
local function stays(key, form, newest, only_ours)
  if is_foreign(key, form, newest) then return FOREIGN end
  local ours = is_ours(newest)
  if only_ours and not ours and call('TYPE', key).ok ~= 'none' then return SPARED end
end

local function invalidate(key, floor, form, only_ours)
  local newest = sound(attempt('GET', floor))
  local life, answer = floor_life, REMOVED
  -- a value that cannot be set (no memory, say) is removed: the row has changed, so the old value must go
  if may_set(newest) and pcall(put, key, kind, ttl, 10, #ARGV) then
    life, answer = longer(ttl, floor_life), SET
  else
    answer = stays(key, form, newest, only_ours) or REMOVED
    if answer == REMOVED then call('UNLINK', key) end
  end
  local ahead = newest and above(newest, stamp) and micros(newest) <= now + clock_step
  call('SET', floor, ahead and newest or stamp, 'PX', life)
  return answer
end

local answers = {}
for i = 1, #KEYS, 2 do
  local nth = (i + 1) / 2
  local form = sub(forms, nth, nth)
  if form == '' or form == '-' then form = nil end
  local answer = answer_of(invalidate, KEYS[i], KEYS[i + 1], form, sub(marks, nth, nth) == '1')
  -- this server has become a replica and has changed nothing; an error of the whole call makes redis-py look for the primary
  if type(answer) == 'string' and string.find(answer, '-READONLY', 1, true) then
    return redis.error_reply('READONLY this server is a replica by now')
  end
  answers[#answers + 1] = answer
end
return answers
