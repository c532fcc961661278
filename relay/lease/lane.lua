-- What enter, renew and leave share: the lane as it stands, and how it is written. Put before each of them.
--
-- KEYS  1 the lease: "<instance> <fence>", expires with the lease
--       2 the lane, a hash: f last fence · n next nonce · m server time at which n last rose
--         w:<instance> "<registration> <server time> <head, -1 does not wait> <known, -1 unknown> <waits since>
--                       <its lease in ms>"
-- ARGV  1 channel prefix · 2 lane · 3 this instance · 4 registration · 5 lease in ms · 6 poll · 7 window, both in us
--       8 "1" in a cluster, where PUBLISH counts the subscribers of one node only
--
-- Registrations of an instance only rise, and what comes later than its successor is not done: a command that its
-- client gave up can neither free nor take what a newer one got or left.
--
-- A lease lasts as long as the one who gets it counts on: instances may be configured differently.
local lease_key, lane_key = KEYS[1], KEYS[2]
local wake, lane, me, registration = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local lease_ms, poll, window, clustered = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] == '1'

local KEEP_MS = 3600000
local FORGET_US = 600 * 1000000
local fresh_us = 2.5 * poll

local clock = redis.call('TIME')
local t = clock[1] * 1000000 + clock[2]

local holder, holder_fence = string.match(redis.call('GET', lease_key) or '', '^(%S+) (%d+)$')
local f, n, m, last, since = 0, -1, 0, 0, t
local waiters, forgotten = {}, {}

-- Doubles are exact up to 2^53; %d would cut them to 32 bits on some builds.
local function text(number)
  return string.format('%.0f', number)
end

local function read_instance(instance, value)
  local reg, at, head, known, from, lease = string.match(value, '^(%d+) (%d+) (-?%d+) (-?%d+) (%d+) (%d+)$')
  reg, at, head, known, from = tonumber(reg), tonumber(at), tonumber(head), tonumber(known), tonumber(from)
  local waits = head >= 0 and t - at < fresh_us
  if instance == me then
    last = reg
    if waits then since = from end
  elseif waits then
    waiters[#waiters + 1] = {
      instance = instance, reg = reg, at = at, head = head, known = known, since = from, lease = tonumber(lease)
    }
  elseif t - at > FORGET_US then
    forgotten[#forgotten + 1] = 'w:' .. instance
  end
end

local all = redis.call('HGETALL', lane_key)
for i = 1, #all, 2 do
  local field, value = all[i], all[i + 1]
  if field == 'f' then f = tonumber(value)
  elseif field == 'n' then n = tonumber(value)
  elseif field == 'm' then m = tonumber(value)
  else read_instance(string.sub(field, 3), value) end
end

local function before(a, b)
  if a.head ~= b.head then return a.head < b.head end
  if a.since ~= b.since then return a.since < b.since end
  return a.instance < b.instance
end

local function expected(known)
  local e = math.max(n, known)
  for _, w in ipairs(waiters) do e = math.max(e, w.known) end
  return e
end

local function may_go(head, e)
  return e < 0 or head <= e
end

-- Another state of the lane was there before (flush, failover): everybody gets a poll to come back.
local function recover(fence)
  if f < fence then f, m = fence, t + 1.3 * poll end
end

-- Writes the lane with one instance's place in it. `call` is redis.call, or redis.pcall where the answer matters more.
local function save(call, instance, reg, at, head, known, from, lease)
  local place = table.concat({text(reg), text(at), text(head), text(known), text(from), text(lease)}, ' ')
  local written = call('HSET', lane_key, 'f', text(f), 'n', text(n), 'm', text(m), 'w:' .. instance, place)
  if type(written) == 'table' and written.err then return end
  for _, field in ipairs(forgotten) do redis.call('HDEL', lane_key, field) end
  redis.call('PEXPIRE', lane_key, KEEP_MS)
end

local function register(call, head, known)
  save(call, me, registration, t, head, known, since, lease_ms)
end

local function unregister(call)
  save(call, me, registration, t, -1, -1, t, lease_ms)
end

local function set_lease(instance, fence, lease)
  redis.call('SET', lease_key, instance .. ' ' .. text(fence), 'PX', text(lease))
end

local function take(fence)
  set_lease(me, fence, lease_ms)
  f = math.max(f, fence)
  unregister(redis.call)
end

local function tell(w, ...)
  return redis.call('PUBLISH', wake .. w.instance, table.concat({...}, ' ')) > 0 or clustered
end

-- The lease is written before the grant is told: with the memory full it is the write that fails, and nobody has heard.
local function offer(w, e, seen)
  local fence = math.max(f + 1, t, seen + 1)
  set_lease(w.instance, fence, w.lease)
  if not tell(w, 'grant', lane, text(fence), text(e), text(w.reg), text(t - w.at)) then
    redis.call('DEL', lease_key)
    return false
  end
  f = fence
  save(redis.call, w.instance, w.reg, w.at, -1, -1, w.at, w.lease)
  return true
end

local function hint(w)
  return tell(w, 'gap', lane, text(n))
end

local function ms(us)
  return text(math.ceil(math.max(0, us) / 1000))
end

-- For how long the lease is another's. One without an expiry is not of our making: it is looked at once in a poll.
local function held_ms()
  local left = redis.call('PTTL', lease_key)
  return left < 0 and ms(poll) or text(left)
end
