"""The end of the demonstration: what was measured, what it must come to, and what it means in plain words.

Pure: the conductor hands in the accounts and prints what comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.demo.lanes import LANES, OURS, TOLD, TTL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.demo.lanes import Lane
    from cacheupdater.demo.ledger import Account

    Accounts = Mapping[Lane, Account]

WAIT_RATIO = 1 / 10  # of the share of reads that wait with TTL cache-aside
STATEMENT_RATIO = 1 / 5
STALE_RATIO = 1 / 10  # of its share of stale reads, with invalidate
# of the reads of the busiest lane, that every lane has at least: the same load, or no comparison
LOAD_RATIO = 0.9

HEADINGS = ("", "reads/s", "waited", "stale", "age p50", "age p99", "rows/s", "statements/s")
LEGEND = (
    ("waited", "of all reads, those that found nothing and waited for the database"),
    ("stale", "of all reads, those that got a price although a newer one had been committed before"),
    (
        "age",
        "how long the price that a stale read got had been out of date: half of them less, 99 % of them less",
    ),
    ("rows, statements", "what the application and the updater together asked of the database"),
)


class Check(NamedTuple):
    """Something that the demonstration promises."""

    passed: bool
    words: str


def cells(lane: Lane, account: Account, seconds: float) -> tuple[str, ...]:
    """One line of the table, under HEADINGS."""
    return (
        lane.title,
        f"{account.reads / seconds:.0f}",
        f"{account.waited_share:.2%}",
        f"{account.stale_share:.2%}",
        _seconds(account.age(0.50)) if account.stale else "-",
        _seconds(account.age(0.99)) if account.stale else "-",
        f"{account.rows / seconds:.0f}",
        f"{account.statements / seconds:.0f}",
    )


def table(accounts: Accounts, seconds: float) -> str:
    """All lanes, as text."""
    lines = [HEADINGS, *(cells(lane, accounts[lane], seconds) for lane in LANES)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(
            [
                line[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
            ]
        )
        for line in lines
    )


def checks(accounts: Accounts, *, hints_again: float | None, killed: bool) -> Sequence[Check]:
    """Whether all that was promised came true. `hints_again`: seconds from the new updater's start to hints."""
    ttl, ours, told = (accounts[lane] for lane in (TTL, OURS, TOLD))
    busiest = max(account.reads for account in accounts.values())
    found = [
        Check(
            all(account.reads >= LOAD_RATIO * busiest for account in accounts.values()) and busiest > 0,
            f"the same load: {ttl.reads}, {ours.reads} and {told.reads} reads",
        ),
        _at_most(
            "reads that waited, ours against TTL",
            ours.waited_share,
            WAIT_RATIO * ttl.waited_share,
            percent=True,
        ),
        _at_most("statements, ours against TTL", ours.statements, STATEMENT_RATIO * ttl.statements),
        _at_most("rows, ours against TTL", ours.rows, ttl.rows),
        _at_most(
            "stale reads, with invalidate against TTL",
            told.stale_share,
            STALE_RATIO * ttl.stale_share,
            percent=True,
        ),
        Check(
            not any(account.wrong for account in accounts.values()),
            f"values of another product: {sum(account.wrong for account in accounts.values())}",
        ),
    ]
    if killed:
        after = "never" if hints_again is None else f"{hints_again:.2f} s after it was ready"
        found.append(
            Check(hints_again is not None, f"hints reached the updater that was started again: {after}")
        )
    return found


def meaning(accounts: Accounts) -> Sequence[str]:
    """The table in plain words, losses included."""
    ttl, ours, told = (accounts[lane] for lane in (TTL, OURS, TOLD))
    return (
        (
            f"Waiting. With a TTL {ttl.waited_share:.0%} of all reads waited for the database, with ours {ours.waited_share:.2%}:"
            " a value is replaced before anybody misses it."
        ),
        (
            f"Cost. The database answered {ours.statements} statements instead of {ttl.statements}, and {ours.rows} rows"
            f" instead of {ttl.rows}: rows are loaded together, behind the readers' backs."
        ),
        (
            f"Losses. At equal rows a fixed interval makes no fewer stale reads than a TTL: {ours.stale_share:.2%} here,"
            f" {ttl.stale_share:.2%} with the TTL. A TTL makes the reader wait for a fresh price; ours hands out the price at"
            " hand and fetches the fresh one for the next reader: where reads are rare, that price is old. And while the"
            " updater was dead, all prices grew older."
        ),
        (
            f"Cure. Whoever says what has changed has both: with invalidate after each commit {told.stale_share:.2%} of the reads"
            f" were stale. {told.waited_share:.2%} waited, between the removal of an old price and the arrival of the new one."
        ),
    )


def _at_most(what: str, value: float, limit: float, *, percent: bool = False) -> Check:
    form = ".2%" if percent else ".0f"
    return Check(value <= limit, f"{what}: {value:{form}}, at most {limit:{form}}")


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
