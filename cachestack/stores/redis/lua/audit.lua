-- What is there of some exact keys of one slot, as of one moment. Changes nothing.
-- KEYS: entries (prefix), exact by id, records, used, gone, numbers   ARGV: exact keys
-- → for each: {bytes, is there a record, id digest, charged, vector set, number, used, gone, does the id lead here,
--   is it in its vector set}; what is not there is ''
local entries, ids, records, used, gone, numbers = unpack(KEYS, 1, 6)
local function is_member(set, exact)
  local said = redis.pcall('VISMEMBER', set, exact)
  if type(said) == 'table' and said.err then said = redis.pcall('VEMB', set, exact) end
  if type(said) == 'table' then return said.err and 0 or 1 end
  return (said == 1 or said == true) and 1 or 0
end
local found = {}
for _, exact in ipairs(ARGV) do
  local packed = redis.call('HGET', records, exact)
  local ok, record = false, nil
  if packed then ok, record = pcall(cmsgpack.unpack, packed) end
  if not ok or type(record) ~= 'table' then record = nil end
  local idd = record and record.idd or ''
  local vectors = record and record.vectors or ''
  table.insert(found, {
    redis.call('GET', entries .. exact) or '',
    record and 1 or 0,
    idd,
    record and tostring(record.charged) or '',
    vectors,
    redis.call('HGET', numbers, exact) or '',
    redis.call('ZSCORE', used, exact) or '',
    redis.call('ZSCORE', gone, exact) or '',
    idd ~= '' and redis.call('HGET', ids, idd) == exact and 1 or 0,
    vectors ~= '' and is_member(vectors, exact) or 0,
  })
end
return found
