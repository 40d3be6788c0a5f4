"""A pytest plugin: the two forms of the suite. It decides which form runs and how large it is.

`make test` runs the short form: all tests except those marked `prove`. `make prove` is `--prove`: it runs only those, and the
full form of tests with two forms. `--times 10` makes the full form ten times as large. `--within 1200` begins no further block
of a campaign after 1,200 seconds, and `--stories-within` does so for all other tests: CI has an end on slow machines too. With
`--turn 5` the sixth test comes first, and the first five last: so such an end does not always leave out the same tests. The
summary names each test that was left out.

A test has two forms if it takes `seeds`, with the numbers of its mark `campaign(short=500, full=200_000, block=5_000)`, or if
it gets its seconds or rounds from the fixture `amount`: `amount(8, 60)`.
"""

from __future__ import annotations

import math
import time

import pytest

TWO_FORMS = {"seeds", "full_form"}
TIMEOUT_S = (
    900.0  # of a test in the full form without a timeout of its own: a block of schedules beside other work
)
# a short campaign takes half a minute of one core. It yields to all other tests, so beside much work it may get a fortieth
CAMPAIGN_S = 1200.0
BEGAN = pytest.StashKey()


def pytest_addoption(parser):
    parser.addoption(
        "--prove", action="store_true", help="campaigns and long stories alone, in their full form"
    )
    parser.addoption("--times", type=int, default=1, help="with --prove: so many times as large (default: 1)")
    parser.addoption(
        "--within",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="with --prove: begin no block of a campaign later (default: no end)",
    )
    parser.addoption(
        "--stories-within",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="with --prove: begin no other test later (default: no end)",
    )
    parser.addoption(
        "--turn",
        type=int,
        default=0,
        help="with --prove: so many tests come last that would be first (default: 0)",
    )


def pytest_configure(config):
    config.stash[BEGAN] = time.monotonic()


def times(config):
    """The size of the full form; 0 for the short form."""
    return config.option.times if config.option.prove else 0


def pytest_generate_tests(metafunc):
    if "seeds" not in metafunc.fixturenames:
        return
    sizes = metafunc.definition.get_closest_marker("campaign").kwargs
    last, block = times(metafunc.config) * sizes["full"] or sizes["short"], sizes["block"]
    blocks = [range(first, min(first + block, last)) for first in range(0, last, block)]
    metafunc.parametrize("seeds", blocks, ids=lambda each: f"{each.start}-{each.stop - 1}")


@pytest.fixture
def full_form(request):
    """Whether this is `make prove`."""
    return bool(times(request.config))


@pytest.fixture
def amount(request, full_form):
    """amount(short, full): seconds, rounds or kills of a story in the form that runs."""
    factor = times(request.config)

    def choose(short, full):
        return factor * full if full_form else short

    return choose


@pytest.hookimpl(tryfirst=True)  # the order of the kinds, which `machine` makes, stays
def pytest_collection_modifyitems(config, items):
    factor = times(config)
    kept, left = [], []
    for item in items:
        (kept if _takes_part(item, full=bool(factor)) else left).append(item)
        if factor:
            _lengthen(item, factor)
        elif item.get_closest_marker("campaign") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(CAMPAIGN_S), append=False)
    first = config.option.turn % max(1, len(kept)) if factor else 0
    items[:] = kept[first:] + kept[:first]
    config.hook.pytest_deselected(items=left)


def pytest_runtest_setup(item):
    if not times(item.config):
        return
    option, campaign = item.config.option, item.get_closest_marker("campaign")
    within, whose = (option.within, "campaigns") if campaign else (option.stories_within, "stories")
    if time.monotonic() - item.config.stash[BEGAN] > within:
        pytest.skip(f"its turn came after the {within:,.0f} s that the {whose} had")


def _takes_part(item, *, full):
    only = item.get_closest_marker("prove") is not None
    return only or not TWO_FORMS.isdisjoint(item.fixturenames) if full else not only


def _lengthen(item, factor):
    given = item.get_closest_marker("timeout")
    seconds = given.args[0] if given else TIMEOUT_S
    item.add_marker(pytest.mark.timeout(max(seconds, TIMEOUT_S) * factor if seconds else 0), append=False)


def pytest_terminal_summary(terminalreporter, config):
    if config.option.prove:
        terminalreporter.write_line(f"the full form, {config.option.times} times as large as usual")
    _name_what_was_skipped(terminalreporter)


def _name_what_was_skipped(terminalreporter):
    """Lists the skipped tests by reason and name: a mere count would not say what was not proved."""
    by_reason = {}
    for report in terminalreporter.stats.get("skipped", ()):
        if isinstance(report.longrepr, tuple):
            by_reason.setdefault(report.longrepr[2].removeprefix("Skipped: "), []).append(report.nodeid)
    for reason, names in by_reason.items():
        terminalreporter.write_line(f"left out, {reason}:")
        for name in sorted(names):
            terminalreporter.write_line(f"  {name}")
