"""The report of this demonstration: the figures, the checks on them, and freshness second by second.

Pure: `main` passes the conductor's outcome in and prints the result.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from cacheupdater.demo.group import plan
from cacheupdater.demo.group.books import PAGES, QUIET, TOLD, together
from cacheupdater.demo.words import AGE, STALE, Check, aligned, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.demo.group.books import Part, Second
    from cacheupdater.demo.group.member import Member
    from cacheupdater.demo.group.stage import Outcome
    from cacheupdater.demo.lanes import Lane

UPDATERS = ("updater", "pid", "partitions", "", "refreshes/s")
READS = ("what is read", "stale", "age p50", "age p99", "waited", "reads/s")
PARTS = ("", "seconds", "refreshes/s", "stale", "age p99", "told", "read p99")
PARTS_LEGEND = "told: stale reads where changes are announced; read: how long one took"
LEGEND = (
    STALE,
    AGE,
    ("waited", "of all reads, those that found nothing and asked the database"),
)
_SIGNS = "▁▂▃▄▅▆▇█"
_MARKS = {2: "K", 3: "O", 4: "N"}  # the parts that begin there
_USUAL, _ORPHANED = 0, 1
_AGAIN = -1


def updater_row(member: Member) -> tuple[str, ...]:
    """One line of the table, under UPDATERS."""
    owned = " ".join(map(str, sorted(member.owned)))
    if member.dead:
        return member.name, str(member.last_pid), "killed", "", "-"
    if not member.last_pid:
        return member.name, "-", "-", "", "-"
    return member.name, str(member.last_pid), str(len(member.owned)), owned, f"{member.rate:.0f}"


def page_row(page: Lane, recent: Part) -> tuple[str, ...]:
    """One line of the table, under READS."""
    account = recent.accounts[page]
    return (
        page.title,
        f"{account.stale_share:.2%}",
        *(_seconds(account.age(share)) if account.stale else "-" for share in (0.5, 0.99)),
        f"{account.waited_share:.2%}",
        f"{account.reads / max(recent.seconds, 1e-9):.0f}",
    )


def part_row(part: Part) -> tuple[str, ...]:
    """One line of the table, under PARTS."""
    return (
        part.title,
        f"{part.seconds:.1f}",
        f"{part.refreshes / max(part.seconds, 1e-9):.0f}",
        f"{part.accounts[QUIET].stale_share:.2%}",
        _seconds(part.accounts[QUIET].age(0.99)),
        f"{part.accounts[TOLD].stale_share:.2%}",
        _seconds(part.slowness(0.99)),
    )


def table(outcome: Outcome) -> str:
    """All parts, as text."""
    return aligned([PARTS, *(part_row(part) for part in outcome.parts)])


def curve(values: Sequence[float]) -> str:
    """One sign for each second. The highest value gets the highest sign."""
    most = max(values, default=0.0)
    scale = (len(_SIGNS) - 1) / most if most else 0.0
    return "".join(_SIGNS[round(value * scale)] for value in values)


def curves(seconds: Sequence[Second]) -> Sequence[str]:
    """Stale reads over time: how many, and how old."""
    stale = {page: [second.stale[page] for second in seconds] for page in PAGES}
    ages = [second.age[QUIET] for second in seconds]
    drawn = [
        ("stale", curve(stale[QUIET]), f"{max(stale[QUIET], default=0.0):.0%}"),
        ("age p99", curve(ages), _seconds(max(ages, default=0.0))),
        ("stale, told", curve(stale[TOLD]), f"{max(stale[TOLD], default=0.0):.1%}"),
    ]
    return [f"{name:11}  {signs}  at most {most}" for name, signs, most in drawn]


def marks(seconds: Sequence[Second]) -> str:
    """Letters under the curves, where parts begin."""
    begins = (after.part if after.part != before.part else 0 for before, after in pairwise(seconds))
    return f"{'':14}" + "".join(_MARKS.get(part, " ") for part in begins).rstrip()


def checks(outcome: Outcome) -> Sequence[Check]:
    """All promises of the demonstration, each checked."""
    wrong = sum(account.wrong for part in outcome.parts for account in part.accounts.values())
    rest = outcome.rest
    return [
        _nothing_lost(outcome),
        Check(
            rest.stale == 0, f"stale at rest: {rest.stale} values, {rest.seconds:.1f} s after the last change"
        ),
        Check(
            outcome.orphans > 0 and outcome.owned_after is not None,
            f"the {outcome.orphans} partitions of the killed one had an owner again after {_within(outcome.owned_after)}",
        ),
        Check(
            outcome.joined_in is not None and min(outcome.shares.values(), default=0) > 0,
            f"the new updater has its share: {_shares(outcome)}; changing hands took {_within(outcome.joined_in)}",
        ),
        _as_before(outcome),
        _told_is_fresh(outcome),
        _reads_go_on(outcome),
        Check(wrong == 0, f"values of another product: {wrong}"),
    ]


def _nothing_lost(outcome: Outcome) -> Check:
    """For each change, an updater's value of its version or a later one was in Redis: that load began after the commit."""
    delays = sorted(outcome.delays)
    median = _seconds(delays[len(delays) // 2]) if delays else "never"
    slowest = _seconds(delays[-1]) if delays else "never"
    return Check(
        outcome.rest.lost == 0 and outcome.announced == len(delays) > 0,
        f"changes announced {outcome.announced}, refreshed after {len(delays)}, lost {outcome.rest.lost};"
        f" half of them within {median}, all within {slowest}",
    )


def _as_before(outcome: Outcome) -> Check:
    usual, again = (outcome.parts[at].accounts[QUIET].stale_share for at in (_USUAL, _AGAIN))
    most = plan.SHARE_AGAIN * usual + plan.SHARE_SLACK
    return Check(
        again <= most, f"stale at the end as before: {again:.2%}, before {usual:.2%}, at most {most:.2%}"
    )


def _told_is_fresh(outcome: Outcome) -> Check:
    accounts = together(outcome.parts).accounts
    most = plan.TOLD_STALE * accounts[QUIET].stale_share
    share = accounts[TOLD].stale_share
    return Check(
        share <= most, f"stale where changes are announced, kill included: {share:.2%}, at most {most:.2%}"
    )


def _reads_go_on(outcome: Outcome) -> Check:
    usual, orphaned = (outcome.parts[at].slowness(0.5) for at in (_USUAL, _ORPHANED))
    ratio = orphaned / usual if usual else 0.0
    most = plan.SLOWER * usual + plan.SLOWER_SLACK_S
    return Check(
        0 < orphaned <= most,
        f"a read took {_seconds(orphaned)} while partitions had no owner, {_seconds(usual)} before: x {ratio:.2f}",
    )


def _shares(outcome: Outcome) -> str:
    return ", ".join(f"{name} {count}" for name, count in outcome.shares.items())


def _within(seconds: float | None) -> str:
    return "too long" if seconds is None else f"{seconds:.1f} s"


def _seconds(value: float) -> str:
    """As in the other demonstration, but with tenths of short milliseconds: a read takes one or two."""
    return f"{value * 1000:.1f} ms" if value < 0.1 else duration(value)
