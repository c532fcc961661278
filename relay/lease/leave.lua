-- Give up whatever this instance has of the lane, and hand it to the one whose turn it is.
-- ARGV  9 fence, 0 none · 10 next, -1 keep · 11 head to wait with, -1 none · 12 known next, -1 unknown
-- Answers  done · yours fence e 0 · held ms e · gap ms e · late
local fence, next, head, known = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
if registration < last then return {'late'} end

-- First, for the first write of a script must not need memory: the later ones then go through with the memory full.
local mine = holder == me
if mine then redis.call('DEL', lease_key) end
local held = holder and not mine
local newest = mine or (not held and f <= fence)
recover(fence)
if fence > 0 and newest and next >= 0 then
  if next > n then m = math.max(m, t) end
  n = next
end

local call = mine and redis.call or redis.pcall
if head >= 0 then register(call, head, known) else unregister(call) end
local e = expected(known)
if held then return head >= 0 and {'held', held_ms(), text(e)} or {'done'} end

if head >= 0 then
  waiters[#waiters + 1] = {instance = me, reg = registration, at = t, head = head, known = known, since = since}
end
table.sort(waiters, before)
local unreached_until = 0
for _, w in ipairs(waiters) do
  local goes = may_go(w.head, e)
  if w.instance == me then
    if not goes then return {'gap', ms(math.max(m + window, unreached_until) - t), text(e)} end
    local new = math.max(f + 1, t)
    take(new)
    return {'yours', text(new), text(e), '0'}
  end
  if goes and offer(w, e, 0) then
    return head >= 0 and {'held', text(w.lease), text(e)} or {'done'}
  end
  if not goes and hint(w) then
    return head >= 0 and {'gap', ms(poll), text(e)} or {'done'}
  end
  unreached_until = math.max(unreached_until, w.at + fresh_us)
end
return {'done'}
