-- Hold the lane for another lease.
-- ARGV  9 fence
-- Answers  yes lowest-waiting-head · no
if holder ~= me or holder_fence ~= ARGV[9] then return {'no'} end
redis.call('PEXPIRE', lease_key, lease_ms)
redis.call('PEXPIRE', lane_key, KEEP_MS)
table.sort(waiters, before)
return {'yes', waiters[1] and text(waiters[1].head) or '-1'}
