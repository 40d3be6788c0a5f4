-- One exchange of a fleet about one source (docs/explanation/state-and-fleet.md); called by fleet_redis.py.
-- KEYS[1]: a hash: per owner "number until claim price aim", and when the hash was born. Times are Redis' own, in ms.
-- ARGV: owner, number of its call, budget, wanted, held, price, aim, a claim's life, the record's youth.
-- Answers the grant and each other owner's "price aim"; nothing to a call that comes after a newer one.
local BORN, FORGOTTEN_MS = 'born', 86400000 -- a fleet that slept for a day is a new one
local record, owner, number = KEYS[1], ARGV[1], tonumber(ARGV[2])
local budget, wanted, held = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local life, youth = tonumber(ARGV[8]), tonumber(ARGV[9])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local born, claimed, answer = nil, 0, { '' }
local fields = redis.call('HGETALL', record)
for i = 1, #fields, 2 do
  local name, entry = fields[i], fields[i + 1]
  if name == BORN then
    born = tonumber(entry)
  else
    local n, till, claim, told = string.match(entry, '^(%d+) (%d+) (%S+) (%S+ %S+)$')
    till, claim = tonumber(till), tonumber(claim)
    if name == owner then
      if n and tonumber(n) >= number then return {} end
    elseif not till or not claim or till <= now then
      redis.call('HDEL', record, name)
    else
      if till > now + life then -- the clock has stepped back; a dead owner's claim must end all the same
        redis.call('HSET', record, name, string.format('%s %.0f %.17g %s', n, now + life, claim, told))
      end
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
local grant = math.max(0, math.min(wanted, free))
-- Whatever was granted: until the answer arrives, the owner spends what it holds.
local entry = string.format('%d %.0f %.17g %s %s', number, now + life, math.max(grant, held), ARGV[6], ARGV[7])
redis.call('HSET', record, owner, entry)
redis.call('PEXPIRE', record, FORGOTTEN_MS)
answer[1] = string.format('%.17g', grant)
return answer
