-- What both scripts share. Values stay plain: the fence lives beside the key, in its floor.

-- Decimal strings are compared as strings: Lua numbers lose digits beyond 2^53.
local function above(a, b)
  return #a > #b or (#a == #b and a > b)
end

local function micros(token)
  return tonumber(string.sub(token, 1, -4))
end

local function longer(a, b)
  return tonumber(a) > tonumber(b) and a or b
end

local function is_wrong_type(reply)
  return type(reply) == 'table' and reply.err and string.find(reply.err, 'WRONGTYPE', 1, true)
end

-- The answers of put.
local UNCHANGED, WRITTEN, WRONG_TYPE = 0, 1, -2

local function put_string(key, ttl, value, replace)
  local old = redis.pcall('GET', key)
  if type(old) == 'table' then
    if not is_wrong_type(old) then error(old.err, 0) end
    if not replace then return WRONG_TYPE end
  elseif old == value then
    redis.call('PEXPIRE', key, ttl)
    return UNCHANGED
  end
  redis.call('SET', key, value, 'PX', ttl)
  return WRITTEN
end

-- Fields and values stand in ARGV[first..last]. What is new goes in before what is old comes out: when memory
-- is short, Redis refuses the first write of a script, and then nothing of the old value is lost.
local function put_hash(key, ttl, first, last, replace)
  local old = redis.pcall('HGETALL', key)
  if old.err then
    if not is_wrong_type(old) then error(old.err, 0) end
    if not replace then return WRONG_TYPE end
    redis.call('SET', key, '')   -- asks for memory before the old value goes
    redis.call('UNLINK', key)
    old = {}
  end
  local was = {}
  for i = 1, #old, 2 do was[old[i]] = old[i + 1] end
  local same, is = #old == last - first + 1, {}
  for i = first, last, 2 do
    is[ARGV[i]] = true
    same = same and was[ARGV[i]] == ARGV[i + 1]
  end
  if same then
    redis.call('PEXPIRE', key, ttl)
    return UNCHANGED
  end
  for i = first, last, 1000 do   -- unpack has room for some thousands
    redis.call('HSET', key, unpack(ARGV, i, math.min(i + 999, last)))
  end
  for field in pairs(was) do
    if not is[field] then redis.call('HDEL', key, field) end
  end
  redis.call('PEXPIRE', key, ttl)
  return WRITTEN
end

local function put_absent(key, replace)
  if not replace then
    local kind = redis.call('TYPE', key).ok
    if kind ~= 'string' and kind ~= 'hash' and kind ~= 'none' then return WRONG_TYPE end
  end
  redis.call('UNLINK', key)
  return WRITTEN
end

-- kind: s = string, h = hash, a = absent
local function put(key, kind, ttl, first, last, replace)
  if tonumber(ttl) < 1 then error('ERR the ttl must be at least 1 ms', 0) end
  if kind == 's' then return put_string(key, ttl, ARGV[first], replace) end
  if kind == 'h' then return put_hash(key, ttl, first, last, replace) end
  return put_absent(key, replace)
end

-- One key's failure is its own answer ("-" and the text) and never stops its neighbours.
local function answer_of(work, ...)
  local ok, answer = pcall(work, ...)
  if ok then return answer end
  return '-' .. (type(answer) == 'table' and answer.err or answer)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
