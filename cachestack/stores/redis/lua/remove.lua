-- Remove those entries that are still the ones that were looked at.
-- KEYS: meta, entries (prefix), exact by id, records, used, gone, journal, numbers
-- ARGV: journal length, channel, then pairs: exact, the change number under which it was put (or '*': whichever)
-- → how many were removed
local meta, entries, ids, records, used, gone, journal, numbers = unpack(KEYS, 1, 8)
local removed = 0
for i = 3, #ARGV, 2 do
  local exact = ARGV[i]
  local packed = redis.call('HGET', records, exact)
  local record = packed and cmsgpack.unpack(packed)
  if record and (ARGV[i + 1] == '*' or redis.call('HGET', numbers, exact) == ARGV[i + 1]) then
    if record.vectors ~= '' then redis.call('VREM', record.vectors, exact) end
    redis.call('DEL', entries .. exact)
    redis.call('HDEL', ids, record.idd)
    redis.call('HDEL', records, exact)
    redis.call('HDEL', numbers, exact)
    redis.call('ZREM', used, exact)
    redis.call('ZREM', gone, exact)
    redis.call('HINCRBY', meta, 'bytes', -record.charged)
    redis.call('HINCRBY', meta, 'num', -1)
    redis.call('HINCRBY', meta, 'latest', 1)
    redis.call('RPUSH', journal, 'r' .. record.id)
    redis.call('PUBLISH', ARGV[2], entries .. exact)
    removed = removed + 1
  end
end
if removed > 0 then redis.call('LTRIM', journal, -tonumber(ARGV[1]), -1) end
return removed
