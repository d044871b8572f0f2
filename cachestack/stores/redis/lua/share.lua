-- Note what a slot holds. What is older than what is known already changes nothing.
-- KEYS: shares, oldest   ARGV: tag, number of the change, bytes, oldest use (or empty: the slot is empty)
-- → the tenant's bytes
local known = redis.call('HGET', KEYS[1], ARGV[1])
local number, bytes = 0, 0
if known then
  number, bytes = string.match(known, '^(%d+) (%-?%d+)$')
end
if tonumber(ARGV[2]) >= tonumber(number) then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
  redis.call('HINCRBY', KEYS[1], 'total', tonumber(ARGV[3]) - tonumber(bytes))
  if ARGV[4] == '' then
    redis.call('ZREM', KEYS[2], ARGV[1])
  else
    redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1])
  end
end
return tonumber(redis.call('HGET', KEYS[1], 'total') or '0')
