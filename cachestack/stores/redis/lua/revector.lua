-- Give an entry another vector, if it is still the one that was read. It counts as no use.
-- KEYS: meta, entries (prefix), records, journal, numbers, new vector set (or meta)
-- ARGV: exact, the change number under which it was put, bytes, charged, vector (or empty), journal length, channel
-- → 1 done · 0 it is another one by now
local meta, entries, records, journal, numbers = unpack(KEYS, 1, 5)
local exact = ARGV[1]
local packed = redis.call('HGET', records, exact)
local record = packed and cmsgpack.unpack(packed)
if not record or redis.call('HGET', numbers, exact) ~= ARGV[2] then return 0 end
if record.vectors ~= '' then redis.call('VREM', record.vectors, exact) end
record.vectors = ''
if ARGV[5] ~= '' then
  record.vectors = KEYS[6]
  redis.call('VADD', record.vectors, 'FP32', ARGV[5], exact, 'Q8')
end
redis.call('SET', entries .. exact, ARGV[3])
redis.call('HINCRBY', meta, 'bytes', tonumber(ARGV[4]) - record.charged)
redis.call('HINCRBY', meta, 'latest', 1)
redis.call('RPUSH', journal, 'p' .. record.id)
redis.call('LTRIM', journal, -tonumber(ARGV[6]), -1)
record.charged = tonumber(ARGV[4])
redis.call('HSET', numbers, exact, redis.call('HGET', meta, 'latest'))
redis.call('HSET', records, exact, cmsgpack.pack(record))
redis.call('PUBLISH', ARGV[7], entries .. exact)
return 1
