"""`PYTHONPATH=tests/support python -m programs SEED`: plays one program on a Redis of its own, and says whether it differs."""

from __future__ import annotations

import sys

from cacheupdater.local.redis_server import RedisServer
from programs.campaign import play_block
from programs.drawing import draw


def main() -> int:
    """The exit code: 1 if the program differs."""
    seed = int(sys.argv[1])
    print(*draw(seed).steps, sep="\n")
    with RedisServer() as server:
        report = play_block([seed], server.url)
    print(report.failure or f"no difference: {report.commands} commands, {dict(report.hints)}")
    return bool(report.failure)


if __name__ == "__main__":
    sys.exit(main())
