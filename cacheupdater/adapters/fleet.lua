-- One exchange of a fleet about one source (docs/explanation/state-and-fleet.md); called by fleet_redis.py.
-- KEYS[1]: a hash: per owner "number until claim price aim since", and when the hash was born. Times are Redis' own, in ms.
-- `since` is when it began to wait: it wants something and has nothing. 0: it does not.
-- ARGV: owner, number of its call, budget, wanted, held, price, aim, the least that is of use, a claim's life, the record's
-- youth, how long nobody is missed.
-- Answers the grant, how many have waited for longer, and each other owner's "price aim"; nothing to a call that comes
-- after a newer one.
local BORN, FORGOTTEN_MS = 'born', 86400000 -- a fleet that slept for a day is a new one
local record, owner, number = KEYS[1], ARGV[1], tonumber(ARGV[2])
local budget, wanted, held = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local least, life, youth, missed = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local born, claimed, answer, since, waiting = nil, 0, { '', 0 }, now, {}
local fields = redis.call('HGETALL', record)
for i = 1, #fields, 2 do
  local name, entry = fields[i], fields[i + 1]
  if name == BORN then
    born = tonumber(entry)
  else
    local n, till, claim, told, waits = string.match(entry, '^(%d+) (%d+) (%S+) (%S+ %S+) ?(%d*)$')
    till, claim, waits = tonumber(till), tonumber(claim), tonumber(waits) or 0 -- an older updater tells no `since`
    if name == owner then
      if n and tonumber(n) >= number then return {} end
      if n and waits > 0 and waits < now then since = waits end
    elseif not till or not claim or till <= now then
      redis.call('HDEL', record, name)
    else
      if till > now + life then -- the clock has stepped back; a dead owner's claim must end all the same
        redis.call('HSET', record, name, string.format('%s %.0f %.17g %s %.0f', n, now + life, claim, told, waits))
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
-- What those need who have waited for longer is kept free. Who holds something has not waited, and keeps it.
local ahead = 0
for _, waits in ipairs(waiting) do
  if held > 0 or waits < since then ahead = ahead + 1 end
end
free = math.max(free - ahead * least, math.min(free, held))
local grant = math.max(0, math.min(wanted, free))
if grant < least * (1 - 1e-9) then grant = 0 end
if wanted == 0 or grant > 0 then since = 0 end
-- Whatever was granted: until the answer arrives, the owner spends what it holds.
local told = string.format('%s %s %.0f', ARGV[6], ARGV[7], since)
local entry = string.format('%d %.0f %.17g %s', number, now + life, math.max(grant, held), told)
redis.call('HSET', record, owner, entry)
redis.call('PEXPIRE', record, FORGOTTEN_MS)
answer[1], answer[2] = string.format('%.17g', grant), tostring(ahead)
return answer
