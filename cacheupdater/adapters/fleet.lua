-- One exchange of a fleet about one source (docs/explanation/state-and-fleet.md); called by fleet_redis.py.
-- KEYS[1]: a hash with an entry per owner, "number until claim price aim since", and the time of the hash's birth. Times are
-- Redis' own, in ms. `since` is when the owner began to wait: it wants a part of the budget and has none. 0: it does not wait.
-- ARGV: owner, number of its call, budget, wanted, held, price, aim, the least useful grant, a claim's life, the record's
-- youth, and the time after which an owner that has not called does not count as waiting.
-- Returns the grant, how many owners have waited for longer, how many invalid entries were found, and each other owner's
-- "price aim". If the call's number is not above the number in the record, returns only the latter: a newer call came first,
-- or another program wrote the entry.
-- Any program that may write to this Redis can write anything here. Entries that no updater would have written are taken for
-- absent, and removed.
local BORN, FORGOTTEN_MS = 'born', 86400000 -- a fleet that made no call for a day begins anew
local OWNERS_MAX, NAME_MAX, ENTRY_MAX, DIGITS_MAX = 2000, 64, 200, 15 -- more than 2000 owners would keep a Redis fully busy
local record, owner, number = KEYS[1], ARGV[1], tonumber(ARGV[2])
local budget, wanted, held = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local least, life, youth, missed = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- A whole number, or a rate, from its text; nil if the text is invalid, negative or infinite.
local function whole(text)
  return text and #text <= DIGITS_MAX and string.find(text, '^%d+$') and tonumber(text) or nil
end

local function rate(text)
  local found = text and #text <= 25 and string.find(text, '^%d[%d.]*e?[+-]?%d*$') and tonumber(text)
  return found and found < math.huge and found or nil
end

local unsound = 0
local fields = redis.pcall('HGETALL', record)
if fields.err and not string.find(fields.err, 'WRONGTYPE', 1, true) then return fields end
if fields.err or #fields > 2 * OWNERS_MAX then
  redis.call('UNLINK', record)
  fields, unsound = {}, 1
end

local born, claimed, answer, since, waiting = nil, 0, { '', 0, 0 }, now, {}
for i = 1, #fields, 2 do
  local name, entry = fields[i], fields[i + 1]
  if name == BORN then
    born = whole(entry)
    if not born then unsound = unsound + 1 end
  else
    local n, till, claim, price, aim, waits
    if #name <= NAME_MAX and #entry <= ENTRY_MAX then
      n, till, claim, price, aim, waits = string.match(entry, '^(%d+) (%d+) (%S+) (%S+) (%S+) ?(%d*)$')
    end
    n, till, claim, waits = whole(n), whole(till), rate(claim), whole(waits) or 0 -- entries of older updaters have no `since`
    if not n or not till or not claim then
      redis.call('HDEL', record, name)
      unsound = unsound + 1
    elseif name == owner then
      if n >= number then return { string.format('%.0f', n) } end
      if waits > 0 and waits < now then since = waits end
    elseif till <= now then
      redis.call('HDEL', record, name)
    else
      -- an entry's price and aim may be missing; its claim counts nevertheless
      local told = string.format('%.17g %.17g', rate(price) or 0, rate(aim) or 0)
      if till > now + life then -- the clock has stepped back; a dead owner's claim must still expire
        redis.call('HSET', record, name, string.format('%.0f %.0f %.17g %s %.0f', n, now + life, claim, told, waits))
      end
      if waits > 0 and till - life > now - missed then waiting[#waiting + 1] = waits end
      claimed = claimed + claim
      answer[#answer + 1] = told
    end
  end
end

if not born or born > now then
  born = now
  redis.call('HSET', record, BORN, string.format('%.0f', born))
end
local free = budget - claimed
if now - born < youth then free = math.min(free, held) end
-- The needs of owners that have waited for longer are kept free. An owner that holds a part has not waited, and keeps it.
local ahead = 0
for _, waits in ipairs(waiting) do
  if held > 0 or waits < since then ahead = ahead + 1 end
end
free = math.max(free - ahead * least, math.min(free, held))
local grant = math.max(0, math.min(wanted, free, budget))
if grant < least * (1 - 1e-9) then grant = 0 end
if wanted == 0 or grant > 0 then since = 0 end
-- The entry claims at least what the owner holds: until the answer arrives, the owner spends that.
local told = string.format('%s %s %.0f', ARGV[6], ARGV[7], since)
local entry = string.format('%d %.0f %.17g %s', number, now + life, math.max(grant, held), told)
redis.call('HSET', record, owner, entry)
redis.call('PEXPIRE', record, FORGOTTEN_MS)
answer[1], answer[2], answer[3] = string.format('%.17g', grant), tostring(ahead), tostring(unsound)
return answer
