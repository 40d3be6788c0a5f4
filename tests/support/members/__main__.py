"""`PYTHONPATH=tests/support python -m members SEED [PLANTED]`: plays one schedule, shows what the depot was asked, and the result."""

from __future__ import annotations

import sys

from members.campaign import PLANTED_FAULTS, run
from members.plan import draw


def main() -> int:
    """The exit code: 1 if something was violated."""
    seed, planted = int(sys.argv[1]), "".join(sys.argv[2:3])
    if planted and planted not in PLANTED_FAULTS:
        sys.exit(f"the faults that can be planted are {', '.join(PLANTED_FAULTS)}")
    print(draw(seed))
    ledger = run(seed, planted)
    for when, text, args in ledger.story:
        print(f"{when:8.3f} {text.format(*args)}")
    print(*ledger.violations or ["no violation"], sep="\n")
    return bool(ledger.violations)


if __name__ == "__main__":
    sys.exit(main())
