-- Give an entry another end, if it is still the one that was read. Nobody needs to read its vector again.
-- KEYS: meta, entries (prefix), records, gone, numbers
-- ARGV: exact, the change number under which it was put, bytes, charged, gone at, channel
-- → 1 done · 0 it is another one by now
local meta, entries, records, gone, numbers = unpack(KEYS, 1, 5)
local exact = ARGV[1]
local packed = redis.call('HGET', records, exact)
if not packed or redis.call('HGET', numbers, exact) ~= ARGV[2] then return 0 end
local record = cmsgpack.unpack(packed)
redis.call('SET', entries .. exact, ARGV[3])
redis.call('HINCRBY', meta, 'bytes', tonumber(ARGV[4]) - record.charged)
record.charged = tonumber(ARGV[4])
redis.call('HSET', records, exact, cmsgpack.pack(record))
redis.call('ZADD', gone, ARGV[5], exact)
redis.call('PUBLISH', ARGV[6], entries .. exact)
return 1
