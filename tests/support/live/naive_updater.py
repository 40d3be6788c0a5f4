"""The control of the two-updater tests: an updater whose write is a plain SET, without token and floor. It must fail them.

Run as `python naive_updater.py run -c FILE`, in the place of `python -m cacheupdater`.
"""

from __future__ import annotations

import sys
from hashlib import sha1

from cacheupdater.cli import main
from cacheupdater_client.protocol import fence

# The arguments and answers of commit.lua, for strings and absent rows.
PLAIN_SET = """
local answers, at = {}, 7
for i = 1, #KEYS, 2 do
  local ttl = ARGV[at]
  if string.sub(ARGV[6], #answers + 1, #answers + 1) == 's' then
    redis.call('SET', KEYS[i], ARGV[at + 1], 'PX', ttl)
    at = at + 2
  else
    redis.call('UNLINK', KEYS[i])
    at = at + 1
  end
  answers[#answers + 1] = 1
end
return answers
"""

if __name__ == "__main__":
    fence.COMMIT = fence.Script(PLAIN_SET, sha1(PLAIN_SET.encode(), usedforsecurity=False).hexdigest())
    sys.exit(main())
