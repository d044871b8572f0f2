-- KEYS: the claim's key   ARGV: token, milliseconds for which those that wait are told that no answer was kept (or 0)
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then return redis.call('DEL', KEYS[1]) end
redis.call('SET', KEYS[1], 'none', 'PX', ARGV[2])
return 1
