-- Can this server take leases? A read-only or a full one answers PING too, so this does what the scripts of a lane do:
-- with a right that is missing the server would be back at each probe, and gone at the next lane.
-- KEYS 1 probe · ARGV 1 channel · 2 ms
redis.call('TIME')
redis.call('SET', KEYS[1], '1', 'PX', ARGV[2])
redis.call('GET', KEYS[1])
redis.call('PTTL', KEYS[1])
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'f', '1', 'w', '1')
redis.call('HDEL', KEYS[1], 'w')
redis.call('HGETALL', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PUBLISH', ARGV[1], 'probe')
return {'ok'}
