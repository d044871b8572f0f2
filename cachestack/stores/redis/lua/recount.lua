-- Count the entries of a slot and their bytes again: reads all its records in one step.
-- KEYS: meta, records, journal   → {entries, bytes}
local num, bytes = 0, 0
for _, packed in ipairs(redis.call('HVALS', KEYS[2])) do
  local ok, record = pcall(cmsgpack.unpack, packed)
  if ok and type(record) == 'table' then
    num = num + 1
    bytes = bytes + record.charged
  end
end
if redis.call('EXISTS', KEYS[1]) == 1 or num > 0 then
  redis.call('HSET', KEYS[1], 'num', num, 'bytes', bytes)
  redis.call('HINCRBY', KEYS[1], 'latest', 1)
  redis.call('DEL', KEYS[3])
end
return {num, bytes}
