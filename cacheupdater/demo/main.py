"""Starts a Redis, a database, an updater and four applications, runs the conductor, and prints the results.

`cli.demo` calls it once per process. Everything lives in a temporary directory and is stopped by this process, also on
Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import signal
from contextlib import ExitStack

from cacheupdater.demo import plan, report
from cacheupdater.demo.catalogue import interval
from cacheupdater.demo.conductor import Conductor
from cacheupdater.demo.follow import Follower
from cacheupdater.demo.keys import Keys
from cacheupdater.demo.lanes import LANES, TOLD, Premises
from cacheupdater.demo.opening import Shop, places
from cacheupdater.demo.picture import terminal
from cacheupdater.demo.screen import screen
from cacheupdater.demo.stage import Stage
from cacheupdater.demo.updater import Updater
from cacheupdater.demo.words import SHOP, exit_code, introduced, judged, lined

_INTRODUCTION = f"""\
{SHOP}\
Four applications read them through a real Redis, {plan.READS_PER_S:.0f} times a second each,
in the same order.
Each may cost {plan.BUDGET} rows a second. A TTL and an interval of {interval(plan.BUDGET):.1f} s cost that:
the sum of 1 / (interval + 1 / reads per second) over all products is the
budget.
"""


def run(*, duration: float, seed: int, plain: bool) -> int:
    """0 if every check passed, otherwise 1."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as with Ctrl-C: in order
    explained = terminal(plain=plain) is not None  # the live screen explains its words itself
    print(_INTRODUCTION, end="" if explained else "\n")
    print("" if explained else introduced(LANES), flush=True)
    with ExitStack() as stack:
        stage = _set(stack, seed)
        with Keys() as keys, screen(plain=plain, steered=keys.heard) as shown:
            outcome = Conductor(stage, shown, keys).run(duration)
    checks = report.checks(outcome)
    if not explained:
        print("\n" + lined(f"{name}: {words}" for name, words in report.LEGEND))
    usual, *others = report.parts(outcome)
    for title, part in others:
        print(f"\n{title}:\n\n{report.table(part)}")
    print("\n" + lined(report.meaning(outcome)) + "\n")
    print(judged(checks))
    title, part = usual
    print(
        f"\n{title}:\n\n{report.table(part)}", flush=True
    )  # last, so that the main table stays on the screen
    return exit_code(checks)


def _set(stack: ExitStack, seed: int) -> Stage:
    """Starts all processes at once. Returns when the shop is open."""
    here = places(stack)
    updater = Updater(here)
    stack.callback(updater.stop)
    updater.start()
    shop = Shop(
        stack, Premises(here.redis_url, here.database, updater.emit, seed, interval(plan.BUDGET)), LANES
    )
    updater.wait_ready()
    shop.wait_ready()
    follower = Follower(here.redis_url)
    stack.callback(follower.stop)
    follower.start()
    follower.since = shop.open(stack, told=TOLD, follow=follower.offer)
    return Stage(shop, follower, updater)
