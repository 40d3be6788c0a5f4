-- release: ends leases. KEYS: the leases. ARGV: their owner. A lease that has gone to somebody else stays.
for i = 1, #KEYS do
  if attempt('GET', KEYS[i]) == ARGV[1] then call('UNLINK', KEYS[i]) end
end
return 0
