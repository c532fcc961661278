-- Ask for the lane, or for one's place among those who wait.
-- ARGV  9 head · 10 known next, -1 unknown · 11 "1": pass the gap below head · 12 highest fence seen
-- Answers  yours fence e gap-passed · held ms e · gap ms e · late
local head, known, gap, seen = tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11] == '1', tonumber(ARGV[12])
if registration < last then return {'late'} end
recover(seen)
local e = expected(known)

if holder == me then
  -- An answer or a grant was lost. The same command run twice keeps its fence, a newer one gets its own.
  local fence = registration == last and tonumber(holder_fence) or math.max(f + 1, t, seen + 1)
  take(fence)
  return {'yours', text(fence), text(e), '0'}
end

if holder then
  register(redis.pcall, head, known)
  redis.call('PUBLISH', wake .. holder, table.concat({'want', lane, text(head)}, ' '))
  return {'held', held_ms(), text(e)}
end

local own = {instance = me, head = head, since = since}
local unreached_until = 0
table.sort(waiters, before)
for _, w in ipairs(waiters) do
  if not before(w, own) then break end
  if may_go(w.head, e) then
    if offer(w, e, seen) then
      register(redis.call, head, known)
      return {'held', text(w.lease), text(e)}
    end
  elseif hint(w) then
    register(redis.call, head, known)
    return {'gap', ms(poll), text(e)}
  end
  unreached_until = math.max(unreached_until, w.at + fresh_us)
end

local passes = gap and unreached_until == 0 and t - m >= window
if may_go(head, e) or passes then
  local fence = math.max(f + 1, t, seen + 1)
  take(fence)
  return {'yours', text(fence), text(e), may_go(head, e) and '0' or '1'}
end
register(redis.call, head, known)
return {'gap', gap and ms(math.max(m + window, unreached_until) - t) or ms(poll), text(e)}
