-- Can this server take leases? A read-only or a full one answers PING too, so this writes, and publishes.
-- KEYS 1 probe · ARGV 1 channel · 2 ms
redis.call('SET', KEYS[1], '1', 'PX', ARGV[2])
redis.call('PUBLISH', ARGV[1], 'probe')
return {'ok'}
