-- Reads the roster of the members that share the streams, and removes what has run out. Stands before renew, claim and leave.
-- KEYS[1]: a hash with `partitions`; `made`, when its first member came; `epoch`, the highest that was given;
-- `member:NAME`, "end length" of its session in ms; `owner:PARTITION`, "epoch name". Times are Redis' own. ARGV[1]: our name.
-- Entries that no updater would have written are taken for absent, and removed.
local roster, me = KEYS[1], ARGV[1]
local EPOCH_MAX = 4503599627370496 -- microseconds: the year 2112
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)

local function whole(text)
  return text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text) or nil
end

-- A Redis at its maxmemory lets a script finish that has begun with a write which takes no memory. Sessions must go on there.
redis.call('HDEL', roster, '')
local members, owners, epoch = {}, {}, 0
local fields = redis.call('HGETALL', roster)
for i = 1, #fields, 2 do
  local name, entry = fields[i], fields[i + 1]
  local member, partition = string.match(name, '^member:(.+)$'), string.match(name, '^owner:(%d+)$')
  if member then
    local till, length = string.match(entry, '^(%d+) (%d+)$')
    till, length = whole(till), whole(length)
    if not till or not length or till <= now then
      redis.call('HDEL', roster, name)
    else
      if till > now + length then -- the clock has stepped back; a dead member's session must still end
        redis.call('HSET', roster, name, string.format('%.0f %.0f', now + length, length))
      end
      members[member] = true
    end
  elseif partition then
    owners[partition] = entry
  elseif name == 'epoch' then
    local said = whole(entry)
    epoch = said and said < EPOCH_MAX and said or 0
  end
end
for partition, entry in pairs(owners) do
  local number, name = string.match(entry, '^(%d+) (.+)$')
  if whole(number) and members[name] then
    owners[partition] = name
  else
    redis.call('HDEL', roster, 'owner:' .. partition)
    owners[partition] = nil
  end
end
