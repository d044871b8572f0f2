-- Remove ids and members of vector sets that no record speaks of.
-- KEYS: exact by id, records, then one vector set or nothing   ARGV: id digests (or, with a vector set, exact keys)
-- → how many were removed
local ids, records, set = KEYS[1], KEYS[2], KEYS[3]
local removed = 0
local function record_of(exact)
  local packed = exact and redis.call('HGET', records, exact)
  if not packed then return nil end
  local ok, record = pcall(cmsgpack.unpack, packed)
  return ok and type(record) == 'table' and record or nil
end
for _, name in ipairs(ARGV) do
  if set then
    local record = record_of(name)
    if not record or record.vectors ~= set then removed = removed + redis.call('VREM', set, name) end
  else
    local record = record_of(redis.call('HGET', ids, name))
    if not record or record.idd ~= name then removed = removed + redis.call('HDEL', ids, name) end
  end
end
return removed
