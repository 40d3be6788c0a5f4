-- commit: the write of a load, for each pair of KEYS (key, floor).
-- ARGV: token, load_age us, clock_step us, least floor life ms, form (empty = nothing is foreign), kinds (one letter a key);
--       then per key: s -> ttl ms, value | h -> ttl ms, 2 * fields, field, value, ... | a -> ttl ms
--                     d -> ttl ms, value without the time of its load
-- Answers per key: 1 written, 0 unchanged, 2 already written by this token, 3 written or unchanged, and the floor has replaced
--       something that was no floor, 4 written over a value that no load of ours wrote, -1 token too old or ahead, -2 foreign:
--       left alone, digits = refused: the floor, "-text" = failed.
local token, load_age, clock_step, floor_life = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local form, kinds = ARGV[5] ~= '' and ARGV[5] or nil, ARGV[6]
local DUPLICATE, UNSOUND, TOO_OLD = 2, 3, -1
local absent_token, foreign_token = sub(token, 1, -4) .. ABSENT_FORM, sub(token, 1, -4) .. FOREIGN_FORM
local disputed_token = sub(token, 1, -4) .. DISPUTED_FORM
local age = now - micros(token)
local expired = age > load_age or age < 0

local function commit(key, floor, kind, ttl, first, last)
  if expired then return TOO_OLD end
  local token = kind == 'a' and absent_token or token
  local newest, there = attempt('GET', floor), false
  if newest then
    there = true
    if newest == token then return DUPLICATE end
    if #newest ~= #token or newest > token then   -- a text that is no floor and not above the token does no harm
      newest = sound(newest)
      -- a floor far ahead means that the clock stepped back: it would refuse everything, so it no longer counts
      local repeated = newest == foreign_token or newest == disputed_token
      if newest and not repeated and above(newest, token) and micros(newest) <= now + clock_step then
        return newest
      end
    end
  end
  local answer, disputed = put(key, kind, ttl, first, last, form, newest, token)
  if answer == FOREIGN then
    -- an error is passed over: without memory, no older load can write
    attempt('SET', floor, disputed and disputed_token or foreign_token, 'PX', floor_life)
    return FOREIGN
  end
  if disputed then token = disputed_token end
  -- value first, floor last; where there is no value, the floor has only to outlive older loads
  call('SET', floor, token, 'PX', kind == 'a' and floor_life or longer(ttl, floor_life))
  if there and not newest then return UNSOUND end
  return answer
end

local answers, at = {}, 7
for i = 1, #kinds do
  local kind, ttl, first, last = sub(kinds, i, i), ARGV[at], at + 1, at
  if kind == 's' or kind == 'd' then
    last = first
  elseif kind == 'h' then
    first, last = at + 2, at + 1 + tonumber(ARGV[at + 1])
  end
  answers[i] = answer_of(commit, KEYS[2 * i - 1], KEYS[2 * i], kind, ttl, first, last)
  at = last + 1
end
return answers
