"""Starts a Redis, a database, an updater and four applications, runs the conductor, and prints the results.

`cli.demo` calls it once per process. Everything lives in a temporary directory and is stopped by this process, also on
Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import signal
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cacheupdater.demo import plan, report
from cacheupdater.demo.catalogue import interval
from cacheupdater.demo.conductor import Conductor
from cacheupdater.demo.follow import Follower
from cacheupdater.demo.keys import Keys
from cacheupdater.demo.lanes import LANES, TOLD, Application, Premises
from cacheupdater.demo.ledger import Ledger
from cacheupdater.demo.screen import drawn, screen
from cacheupdater.demo.shop import BackOffice, build
from cacheupdater.demo.stage import Stage
from cacheupdater.demo.updater import Places, Updater
from cacheupdater.errors import Misconfigured
from cacheupdater.local.redis_server import RedisServer
from cacheupdater_client import Redis, close

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater.demo.lanes import Lane
    from cacheupdater.demo.shop import Change

_INTRODUCTION = f"""\
A shop with {plan.PRODUCTS} products in SQLite; {plan.CHANGES_PER_S:.0f} prices change every second,
most of them always the same few.
Four applications read them through a real Redis, {plan.READS_PER_S:.0f} times a second each,
in the same order.
Each may cost {plan.BUDGET} rows a second. A TTL and an interval of {interval(plan.BUDGET):.1f} s cost that:
the sum of 1 / (interval + 1 / reads per second) over all products is the
budget.
"""


def run(*, duration: float, seed: int, plain: bool) -> int:
    """0 if every check passed, otherwise 1."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as with Ctrl-C: in order
    explained = drawn(plain=plain)  # the live screen explains its words itself
    print(_INTRODUCTION, end="" if explained else "\n")
    print("" if explained else report.lined(f"- {lane.title}: {lane.words}" for lane in LANES), flush=True)
    with ExitStack() as stack:
        stage = _set(stack, seed)
        with Keys() as keys, screen(plain=plain, steered=keys.heard) as shown:
            outcome = Conductor(stage, shown, keys).run(duration)
    checks = report.checks(outcome)
    if not explained:
        print("\n" + report.lined(f"{name}: {words}" for name, words in report.LEGEND))
    usual, *others = report.parts(outcome)
    for title, part in others:
        print(f"\n{title}:\n\n{report.table(part)}")
    print("\n" + report.lined(report.meaning(outcome)) + "\n")
    print(report.lined(map(str, checks), after=report.LABELLED))
    title, part = usual
    print(
        f"\n{title}:\n\n{report.table(part)}", flush=True
    )  # last, so that the main table stays on the screen
    return 1 if any(check.passed is False for check in checks) else 0


def _set(stack: ExitStack, seed: int) -> Stage:
    """Starts all processes at once. Returns when the shop is open."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cacheupdater-demo-")))
    redis_url = stack.enter_context(redis_server()).url
    database = folder / "shop.db"
    build(database)
    updater = Updater(Places(folder, redis_url, database))
    stack.callback(updater.stop)
    updater.start()
    premises = Premises(redis_url, database, updater.emit, seed, interval(plan.BUDGET))
    applications = []
    for lane in LANES:
        applications.append(Application(lane, premises))
        stack.callback(applications[-1].close)
    updater.wait_ready()
    for application in applications:
        application.wait_ready()
    ledger, follower = Ledger(), Follower(redis_url)
    stack.callback(follower.stop)
    office = back_office(stack, premises, ledger=ledger, told=TOLD, follow=follower.offer)
    opening = follower.since = time.monotonic()
    for application in applications:
        application.open(opening)
    follower.start()
    office.start()
    return Stage(ledger, office, follower, updater, applications)


def redis_server() -> RedisServer:
    """A server of our own; Misconfigured if this machine has none."""
    try:
        return RedisServer()
    except FileNotFoundError as e:
        raise Misconfigured(str(e)) from e


def back_office(
    stack: ExitStack, premises: Premises, *, ledger: Ledger, told: Lane, follow: Callable[[Change], None]
) -> BackOffice:
    """The back office. It announces its changes to the cache of one application."""
    stack.callback(partial(close, 0.1))
    cache = stack.enter_context(Redis.from_url(premises.redis_url, emit=premises.emit))
    office = BackOffice(
        premises.database,
        premises.seed,
        committed=ledger.commit,
        announce=lambda number: cache.invalidate(told.key(number)),
        follow=follow,
    )
    stack.callback(office.stop)
    return office
