-- Add up a tenant's shares again; those of the slots that are named are forgotten first.
-- KEYS: shares, oldest   ARGV: tags of slots   → the tenant's bytes
for _, tag in ipairs(ARGV) do
  redis.call('HDEL', KEYS[1], tag)
  redis.call('ZREM', KEYS[2], tag)
end
local total = 0
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if all[i] ~= 'total' then
    local _, bytes = string.match(all[i + 1], '^(%d+) (%-?%d+)$')
    total = total + (tonumber(bytes) or 0)
  end
end
redis.call('HSET', KEYS[1], 'total', total)
return total
