-- Publish an entry of one slot: the bytes, the ways to it, its vector, the change record. One step, or nothing.
-- KEYS: meta, entries (prefix), exact by id, records, used, gone, journal, numbers, fences, new vector set (or meta)
-- ARGV: exact, id digest, id, bytes, charged, now, gone at, created at, keep_newer, fences seen, first number,
--       journal length, vector (or empty), channel, whether the partition was just registered
-- → {state, …}: 1 kept · 0 not, there is a newer one · -1 look at the fences that follow first · -2 register first
local meta, entries, ids, records, used, gone, journal, numbers, fences = unpack(KEYS, 1, 9)
local exact, idd, id, data, charged, now, gone_at, created = unpack(ARGV, 1, 8)

if ARGV[15] ~= '1' and redis.call('EXISTS', meta) == 0 then return {'-2'} end
local seen = redis.call('HGET', meta, 'fences') or '0'
if seen ~= ARGV[10] then
  local found = redis.call('ZRANGE', fences, 0, -1)
  table.insert(found, 1, seen)
  table.insert(found, 1, '-1')
  return found
end

local function record_of(key)
  local packed = redis.call('HGET', records, key)
  return packed and cmsgpack.unpack(packed) or nil
end

local there = record_of(exact)
local former = redis.call('HGET', ids, idd)
local moved = former and former ~= exact and record_of(former) or nil
if ARGV[9] == '1' then
  for _, record in ipairs({there or false, moved or false}) do
    if record and tonumber(record.created) >= tonumber(created) then return {'0'} end
  end
end

redis.call('HSETNX', meta, 'latest', ARGV[11])

local function log(kind, entry_id)
  redis.call('HINCRBY', meta, 'latest', 1)
  redis.call('RPUSH', journal, kind .. entry_id)
end

local function forget(key, record)
  if record.vectors ~= '' then redis.call('VREM', record.vectors, key) end
  redis.call('HINCRBY', meta, 'bytes', -record.charged)
  redis.call('HINCRBY', meta, 'num', -1)
end

if there then
  forget(exact, there)
  if there.idd ~= idd then
    redis.call('HDEL', ids, there.idd)
    log('r', there.id)
  end
end
if moved then
  forget(former, moved)
  redis.call('DEL', entries .. former)
  redis.call('HDEL', records, former)
  redis.call('HDEL', numbers, former)
  redis.call('ZREM', used, former)
  redis.call('ZREM', gone, former)
  redis.call('PUBLISH', ARGV[14], entries .. former)
end

log('p', id)
local vectors = ''
if ARGV[13] ~= '' then
  vectors = KEYS[10]
  redis.call('VADD', vectors, 'FP32', ARGV[13], exact, 'Q8')
end
redis.call('SET', entries .. exact, data)
redis.call('HSET', ids, idd, exact)
redis.call('HSET', records, exact, cmsgpack.pack({
  id = id, idd = idd, charged = tonumber(charged), vectors = vectors, created = created,
}))
redis.call('HSET', numbers, exact, redis.call('HGET', meta, 'latest'))
redis.call('ZADD', used, now, exact)
redis.call('ZADD', gone, gone_at, exact)
redis.call('HINCRBY', meta, 'bytes', charged)
redis.call('HINCRBY', meta, 'num', 1)
redis.call('LTRIM', journal, -tonumber(ARGV[12]), -1)
redis.call('PUBLISH', ARGV[14], entries .. exact)
return {'1'}
