"""The process that owns the run's one Kafka: `python keeper.py FOLDER`, started by the first test that asks.

Test processes come and go in any order, so none of them may own what all of them use. Each user holds a shared lock on the
folder's file `users`. The keeper waits for an exclusive lock, and gets it when the last user is gone, in order or by SIGKILL:
the kernel keeps the count. Then the broker ends. A later user waits for that end, and starts a new keeper.
"""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

from cacheupdater.local import kafka_topics
from cacheupdater.local.kafka_server import KafkaServer


def keep(folder: Path) -> None:
    with KafkaServer() as server:
        kafka_topics.done(kafka_topics.coordinated(server.bootstrap))
        draft = folder / "draft"
        draft.write_text(f"{server.bootstrap}\n{server.pid}\n")
        draft.rename(folder / "broker")  # whole, or not there
        with (folder / "users").open("a") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            (folder / "broker").unlink()


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
