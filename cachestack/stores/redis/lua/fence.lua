-- Note an invalidation, so that an answer that was asked for before it is not put after it.
-- KEYS: meta (or nothing), fences
-- ARGV: fence, its time, the times before and after which others are forgotten, how many are kept at most
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '(' .. ARGV[4], '+inf')
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1 - tonumber(ARGV[5]))
return redis.call('HINCRBY', KEYS[1], 'fences', 1)
