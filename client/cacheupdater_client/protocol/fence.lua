-- What both scripts share. Values stay plain: the fence lives beside the key, in its floor.

-- A usual write uses these for each key. Lua finds a local at once, a global by two look-ups.
local byte, sub, call, attempt = string.byte, string.sub, redis.call, redis.pcall

-- Decimal strings are compared as strings: Lua numbers lose digits beyond 2^53.
local function above(a, b)
  return #a > #b or (#a == #b and a > b)
end

local function micros(token)
  return tonumber(sub(token, 1, -4))
end

-- A floor as we write it. Anything else in its place (another type, padding, megabytes) does not count as a floor.
local FLOOR_DIGITS = 20   -- microseconds since 1970, and three digits: enough until the year 5138

local function sound(floor)
  if type(floor) == 'table' then
    if string.find(floor.err, 'WRONGTYPE', 1, true) then return nil end
    error(floor.err, 0)
  end
  return floor and #floor <= FLOOR_DIGITS and string.find(floor, '^[1-9]%d*$') and floor or nil
end

-- How the floor of a load ends that found no row: the floor marks the key as absent.
local ABSENT_FORM = '005'

-- The floor of a load ends with the number of its form, which is below this one.
local FORMS_END = '100'

-- How the floor of a load ends that found a foreign value. The value stays. A load that began earlier must not write once the
-- foreign value has expired.
local FOREIGN_FORM = '997'

-- How the floor of a load ends that found no row, and has removed a value for the second time. The application writes the key again
-- and again, so it sees a row that we do not see.
local DISPUTED_FORM = '996'

-- How the floor of a change ends that left the old value in its place.
local OUTDATED_FORM = '998'

-- Whether a load that found a row has set this floor. Only then does the floor tell the age of the value.
local function is_of_load(newest)
  local last = newest and sub(newest, -3)
  return last and last < FORMS_END and last ~= ABSENT_FORM
end

-- Whether a load has written the value beside this floor, or a change has left that value in its place.
local function is_ours(newest)
  return is_of_load(newest) or newest and sub(newest, -3) == OUTDATED_FORM
end

local function longer(a, b)
  return tonumber(a) > tonumber(b) and a or b
end

local function is_wrong_type(reply)
  return type(reply) == 'table' and reply.err and string.find(reply.err, 'WRONGTYPE', 1, true)
end

-- A value is foreign if it reads neither in the namespace's form nor in the form of our last write. Forms: j = JSON,
-- m = msgpack, p = pickle, s = any string, h = hash, t = any string or hash; of cachelib: c = pickle; of dogpile: d = pickle,
-- D = JSON; nil = nothing is foreign. The path of a usual write makes no tables and no closures: Lua would make them anew in
-- each run of the script.

-- The form of the load that wrote this floor, from the floor's last digits. Empty if no load wrote it.
local function form_of(newest)
  local last = newest and sub(newest, -3)
  if last == '001' then return 'j' end
  if last == '002' then return 'm' end
  if last == '003' then return 's' end
  if last == '006' then return 'p' end
  if last == '007' then return 'c' end
  if last == '008' then return 'd' end
  if last == '009' then return 'D' end
  return last == '004' and 'h' or ''
end

-- A shape check reads a few bytes, however long the value is. That is enough for values beside a floor of ours.
local SCALAR_MAX = 1000   -- bytes; no number that anybody caches has so many digits

local function json_shape(value)
  local opens, ends = byte(value, 1), byte(value, -1)
  if opens and opens <= 32 then opens = byte(value, (string.find(value, '%S'))) end
  if opens == 123 then return ends == 125 or ends <= 32 end   -- { }
  if opens == 91 then return ends == 93 or ends <= 32 end     -- [ ]
  if opens == 34 then return ends == 34 or ends <= 32 end     -- " "
  if #value > SCALAR_MAX then return false end
  if string.find(value, '^%s*%-?%d[%d.eE+-]*%s*$') then return true end
  local word = string.match(value, '^%s*%-?(%a+)%s*$')
  return word == 'true' or word == 'false' or word == 'null' or word == 'NaN' or word == 'Infinity'
end

-- For first bytes from 192 on: the bytes of a msgpack item, without the content that its length or count announces.
-- 0 = no item begins with this byte.
local HEADS = '\1\0\1\1\2\3\5\3\4\6\5\9\2\3\5\9\2\3\5\9\3\4\6\10\18\2\3\5\3\5\3\5'

local function number_at(value, at, bytes)
  local number = 0
  for i = at, at + bytes - 1 do number = number * 256 + (byte(value, i) or 0) end
  return number
end

-- The bytes that the item at this place takes, and the number of items in it. Nil if no item begins with this byte.
local function item(value, at)
  local first = byte(value, at)
  if not first or first == 193 then return nil end
  if first <= 127 or first >= 224 then return 1, 0 end
  if first <= 143 then return 1, 2 * (first - 128) end
  if first <= 159 then return 1, first - 144 end
  if first <= 191 then return 1 + first - 160, 0 end
  local head = byte(HEADS, first - 191)
  if first >= 220 then
    local count = number_at(value, at + 1, first % 2 == 0 and 2 or 4)
    return head, first >= 222 and 2 * count or count
  end
  if first >= 217 then return head + number_at(value, at + 1, 2 ^ (first - 217)), 0 end
  if first >= 196 and first <= 201 then return head + number_at(value, at + 1, 2 ^ ((first - 196) % 3)), 0 end
  return head, 0
end

-- An item that contains no others must end where the value ends. So a pickle, which begins like an empty map, is not msgpack.
local function msgpack_shape(value)
  local size, holds = item(value, 1)
  if not size then return false end
  return holds > 0 and #value >= size + holds or holds == 0 and #value == size
end

local function is_msgpack(value)
  local at, left = 1, 1
  while left > 0 do
    local size, holds = item(value, at)
    if not size then return false end
    at, left = at + size, left - 1 + holds
  end
  return at == #value + 1
end

-- A pickle begins with its protocol (from 2 on) and ends with a dot.
local function is_pickle_at(value, at)
  local first, protocol = byte(value, at, at + 1)
  return first == 128 and protocol and protocol >= 2 and protocol <= 5 and byte(value, -1) == 46
end

local function is_integer(value)
  return #value <= SCALAR_MAX and string.find(value, '^%-?%d+$') ~= nil
end

-- dogpile's metadata and a bar stand before the payload. Where the payload begins; nil if the value is none of dogpile's.
local METADATA_MAX = 200   -- bytes; dogpile writes forty

local function payload_at(value)
  local _, bar = string.find(sub(value, 1, METADATA_MAX), '^{"ct": [^|]*}|')
  return bar and bar + 1
end

-- Django writes an integer in digits, or a pickle; cachelib, too, and puts a sign before the pickle.
local function framework_shape(form, value)
  if form == 'p' then return is_pickle_at(value, 1) or is_integer(value) end
  if form == 'c' then return byte(value, 1) == 33 and is_pickle_at(value, 2) or is_integer(value) end
  local at = form == 'd' and payload_at(value)
  return at and is_pickle_at(value, at)
end

local function shaped(form, value)
  if form == 'j' then return json_shape(value) end
  if form == 'm' then return msgpack_shape(value) end
  if form == 's' or form == 't' then return true end
  if form ~= 'D' then return framework_shape(form, value) end
  local at = payload_at(value)
  return at and json_shape(sub(value, at))
end

local function reads(form, value)
  if form == 'j' then return json_shape(value) and (pcall(cjson.decode, value)) end
  if form == 'm' then return is_msgpack(value) end
  if form ~= 'D' then return shaped(form, value) end
  local at = payload_at(value)
  return at and reads('j', sub(value, at))
end

-- Also returns true if it is known already that the floor is a load's.
local function is_foreign_string(value, form, newest)
  if form == 's' or form == 't' then return false end
  -- The usual case: an object, or a map of up to 15 entries, beside the floor of a load of the same form. It calls no
  -- function of ours.
  local last, first = newest and sub(newest, -3), byte(value, 1)
  if form == 'j' then
    if last == '001' and first == 123 and byte(value, -1) == 125 then return false, true end
  elseif last == '002' and form == 'm' and first and first > 128 and first <= 143 then
    return #value <= 2 * (first - 128), true
  end
  local wrote = form_of(newest)
  if wrote == '' then return not reads(form, value) end
  return not (shaped(form, value) or shaped(wrote, value)), true
end

local function is_own_hash(key, form, newest)
  return (form == 'h' or form == 't' or form_of(newest) == 'h') and call('TYPE', key).ok == 'hash'
end

local function is_foreign(key, form, newest)
  if not form then return false end
  local value = attempt('GET', key)
  if type(value) ~= 'table' then return value and is_foreign_string(value, form, newest) end
  if not is_wrong_type(value) then error(value.err, 0) end
  return not is_own_hash(key, form, newest)
end

-- The answers of put.
local UNCHANGED, WRITTEN, ADOPTED, FOREIGN = 0, 1, 4, -2

-- The answer of a write where a value was. If no load of ours wrote that value, other bytes may mean the same, only spelled
-- otherwise. Equal bytes are answered alike. If they were not, only the fresh ones of such values would be counted.
-- But a value that a change has left in its place is old, whoever wrote it: the change was announced.
local function over(newest, answer)
  return is_ours(newest) and answer or ADOPTED
end

-- A value of dogpile arrives without a date. Its metadata gets the time of the load, for dogpile counts from there.
local UNDATED = '{"ct": 0'

local function dated(value, token)
  return '{"ct": ' .. sub(token, 1, -10) .. '.' .. sub(token, -9, -4) .. sub(value, #UNDATED + 1)
end

local function is_same_payload(old, value)
  local at = type(old) == 'string' and payload_at(old)
  return at and sub(old, at) == sub(value, payload_at(value))
end

-- token: of a load whose time the value tells. That time alone is no change.
local function put_string(key, ttl, value, form, newest, token)
  local old, foreign, ours = attempt('GET', key)
  if type(old) == 'table' then
    if not is_wrong_type(old) then error(old.err, 0) end
    if form and not is_own_hash(key, form, newest) then return FOREIGN end
  elseif old == value then
    call('PEXPIRE', key, ttl)
    return over(newest, UNCHANGED)
  elseif old and form then
    foreign, ours = is_foreign_string(old, form, newest)
    if foreign then return FOREIGN end
  end
  call('SET', key, token and dated(value, token) or value, 'PX', ttl)
  if token and is_same_payload(old, value) then return over(newest, UNCHANGED) end
  return (ours or not old) and WRITTEN or over(newest, WRITTEN)
end

-- Fields and values stand in ARGV[first..last]. New fields are set before old ones are deleted: when memory is short,
-- Redis refuses the first write of a script, and the old value stays whole.
local function put_hash(key, ttl, first, last, form, newest)
  local old = attempt('HGETALL', key)
  local there = old.err or old[1]
  if old.err then
    if not is_wrong_type(old) then error(old.err, 0) end
    if is_foreign(key, form, newest) then return FOREIGN end
    call('SET', key, '')   -- asks for memory before the old value goes
    call('UNLINK', key)
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
    call('PEXPIRE', key, ttl)
    return there and over(newest, UNCHANGED) or UNCHANGED
  end
  for i = first, last, 1000 do   -- unpack takes a few thousand values at most
    call('HSET', key, unpack(ARGV, i, math.min(i + 999, last)))
  end
  for field in pairs(was) do
    if not is[field] then call('HDEL', key, field) end
  end
  call('PEXPIRE', key, ttl)
  return there and over(newest, WRITTEN) or WRITTEN
end

-- Values that are null or empty: they say themselves that there is no row. They stand in one text, for Lua would make a table anew
-- in each run.
local EMPTY_JSON = ' null [] {} "" '
local EMPTY_MSGPACK = '\128\144\160\192'
local EMPTY_PICKLES = ' N. ). ]\148. }\148. \140\0\148. ]q\0. }q\0. X\0\0\0\0q\0. '
local FRAME, FRAME_BYTES = 149, 9

local function is_empty_pickle(value, at)
  local said = sub(value, at + 2)   -- behind the protocol
  if byte(said, 1) == FRAME then said = sub(said, FRAME_BYTES + 1) end
  return string.find(EMPTY_PICKLES, ' ' .. said .. ' ', 1, true)
end

-- For values that are not foreign. No string says so, for a row may hold an empty text.
local function says_nothing(form, value)
  if #value > SCALAR_MAX then return false end
  if form == 'm' then return #value == 1 and string.find(EMPTY_MSGPACK, value, 1, true) end
  if form == 'p' then return is_pickle_at(value, 1) and is_empty_pickle(value, 1) end
  if form == 'c' then return is_pickle_at(value, 2) and is_empty_pickle(value, 2) end
  if form == 'j' then
    local word = string.match(value, '^%s*(%S+)%s*$')
    return word and string.find(EMPTY_JSON, ' ' .. word .. ' ', 1, true)
  end
  local at = (form == 'd' or form == 'D') and payload_at(value)
  if not at then return false end
  if form == 'd' then return is_empty_pickle(value, at) end
  return says_nothing('j', sub(value, at))
end

-- Whether the application itself has cached that there is no row.
local function is_told(key, form, newest)
  local value = form and not is_ours(newest) and attempt('GET', key)
  return type(value) == 'string' and says_nothing(form, value)
end

-- An absent row removes the value, unless the value says that there is none. It also removes the next one, which a slow reader
-- may have written late. A value that is written after that stays, for a ttl of ours at the most. Also returns the form of the
-- floor.
local function put_absent(key, ttl, form, newest)
  if is_foreign(key, form, newest) then return FOREIGN end
  newest = form and sound(newest)
  if is_told(key, form, newest) then return UNCHANGED end
  local last = newest and sub(newest, -3)
  if last == DISPUTED_FORM then
    if call('TYPE', key).ok == 'none' then return WRITTEN, DISPUTED_FORM end
    local left = attempt('PTTL', key)   -- a user without this right leaves the value its own ttl
    if left == -1 or type(left) == 'number' and left > tonumber(ttl) then call('PEXPIRE', key, ttl) end
    return FOREIGN, DISPUTED_FORM
  end
  local removed = call('UNLINK', key)
  return WRITTEN, last == ABSENT_FORM and removed == 1 and DISPUTED_FORM or nil
end

-- kind: s = string, d = string that tells the time of its load, h = hash, a = absent. A hash is judged by its type alone, and
-- so is a string where form is t.
local function put(key, kind, ttl, first, last, form, newest, token)
  if tonumber(ttl) < 1 then error('ERR the ttl must be at least 1 ms', 0) end
  if kind == 's' then return put_string(key, ttl, ARGV[first], form == 't' and 's' or form, newest) end
  if kind == 'd' then return put_string(key, ttl, ARGV[first], form, newest, token) end
  if kind == 'h' then return put_hash(key, ttl, first, last, form and 'h', newest) end
  return put_absent(key, ttl, form, newest)
end

-- One key's failure is its own answer ("-" and the text) and never stops its neighbours.
local function answer_of(work, ...)
  local ok, answer = pcall(work, ...)
  if ok then return answer end
  return '-' .. (type(answer) == 'table' and answer.err or answer)
end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
