-- KEYS: the claim's key   ARGV: token, milliseconds   → 1 renewed · 0 it is another one's by now, or nobody's
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
