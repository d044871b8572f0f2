-- Remove every trace of some exact keys of one slot, where the bytes are still those that were looked at. What the
-- counts then are, recount.lua says.
-- KEYS: meta, entries (prefix), exact by id, records, used, gone, journal, numbers, then vector sets
-- ARGV: journal length, channel, then triples: exact, SHA-1 of the bytes, id ('' where it is not known)
-- → how many were removed
local meta, entries, ids, records, used, gone, journal, numbers = unpack(KEYS, 1, 8)
local removed = 0
for i = 3, #ARGV, 3 do
  local exact, id = ARGV[i], ARGV[i + 2]
  local data = redis.call('GET', entries .. exact) or ''
  if redis.sha1hex(data) == ARGV[i + 1] then
    local packed = redis.call('HGET', records, exact)
    local ok, record = false, nil
    if packed then ok, record = pcall(cmsgpack.unpack, packed) end
    if ok and type(record) == 'table' then
      if redis.call('HGET', ids, record.idd) == exact then redis.call('HDEL', ids, record.idd) end
      if id == '' then id = record.id end
    end
    for set = 9, #KEYS do redis.call('VREM', KEYS[set], exact) end
    redis.call('DEL', entries .. exact)
    redis.call('HDEL', records, exact)
    redis.call('HDEL', numbers, exact)
    redis.call('ZREM', used, exact)
    redis.call('ZREM', gone, exact)
    redis.call('HINCRBY', meta, 'latest', 1)
    redis.call('RPUSH', journal, 'r' .. id)
    redis.call('PUBLISH', ARGV[2], entries .. exact)
    removed = removed + 1
  end
end
if removed > 0 then redis.call('LTRIM', journal, -tonumber(ARGV[1]), -1) end
return removed
