-- Add to sums, once: a process that does not know whether it was heard says the same again.
-- KEYS: batches (by process, the last one that was added), then a HASH of sums for each tenant
-- ARGV: process, batch, its time, how long a process is remembered (s), then as JSON the sums of each tenant
-- → 1 added · 0 it was added before
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known and tonumber(string.match(known, '^(%d+) ')) >= tonumber(ARGV[2]) then return 0 end
for i = 2, #KEYS do
  for name, number in pairs(cjson.decode(ARGV[i + 3])) do
    redis.call('HINCRBYFLOAT', KEYS[i], name, number)
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
if tonumber(ARGV[2]) % 1000 == 1 then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local at = tonumber(string.match(all[i + 1], ' (%-?[%d%.e%+]+)$'))
    if at and at < tonumber(ARGV[3]) - tonumber(ARGV[4]) then redis.call('HDEL', KEYS[1], all[i]) end
  end
end
return 1
