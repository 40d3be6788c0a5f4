"""The report of the demonstration: the figures, the checks on them, and their meaning in plain words.

Pure: `main` passes the conductor's outcome in and prints the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.demo import plan
from cacheupdater.demo.books import together
from cacheupdater.demo.lanes import FIXED, LANES, PRICE, SERVED, TOLD, TTL
from cacheupdater.demo.words import AGE, STALE, Check, aligned, duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cacheupdater.demo.books import Accounts, Part
    from cacheupdater.demo.lanes import Lane
    from cacheupdater.demo.ledger import Account
    from cacheupdater.demo.stage import Outcome

# of the share of stale reads with a TTL, or with a fixed interval: the most that `price` may have. On an idle machine it has
# two thirds, and a busy machine must not look like a broken promise
FRESHER = 1.0
TOLD_STALE = 1 / 10  # of TTL's share of stale reads, where changes are announced
TOLD_WAITED = (
    1 / 2
)  # of its share of reads that wait: an announced change removes the value, and the first reader waits
# the rows that the TTL lane must have cost, of those that it was meant to cost; or the comparison is not fair
TTL_ROWS = (0.85, 1.15)
# of the reads of the busiest lane: the least that every lane must have, for comparisons need the same load
LOAD_RATIO = 0.9

HEADINGS = ("", "waited", "stale", "age p50", "age p99", "rows/s", "statements/s")
LEGEND = (
    ("waited", "of all reads, those that found nothing and waited for the database"),
    STALE,
    AGE,
    ("rows", "loaded from the database, by the updater and by readers that waited"),
)


def cells(lane: Lane, account: Account, seconds: float) -> tuple[str, ...]:
    """One line of the table, under HEADINGS."""
    per_second = 1.0 / max(seconds, 1e-9)
    return (
        lane.title,
        f"{account.waited_share:.2%}",
        f"{account.stale_share:.2%}",
        duration(account.age(0.50)) if account.stale else "-",
        duration(account.age(0.99)) if account.stale else "-",
        f"{account.rows * per_second:.0f}",
        f"{account.statements * per_second:.0f}",
    )


def table(part: Part) -> str:
    """All lanes, as text."""
    return aligned([HEADINGS, *(cells(lane, part.accounts[lane], part.seconds) for lane in LANES)])


def parts(outcome: Outcome) -> Iterator[tuple[str, Part]]:
    """Each part of the run, with its title."""
    yield f"As usual, {outcome.usual.seconds:.0f} s after the warm-up", outcome.usual
    if outcome.still is not None:
        yield (
            f"The {plan.HOT} hottest products stand still, all others change alike, {outcome.still.seconds:.0f} s",
            outcome.still,
        )
    if outcome.outage is not None:
        yield f"Updater killed, started again, learning anew, {outcome.outage.seconds:.0f} s", outcome.outage


def whole(outcome: Outcome) -> Part:
    """All parts together."""
    return together(part for _, part in parts(outcome))


def checks(outcome: Outcome) -> Sequence[Check]:
    """All promises of the demonstration, each checked."""
    accounts, usual = whole(outcome).accounts, outcome.usual.accounts
    found = [
        _same_load(accounts),
        _budget_kept(outcome),
        _nobody_waits(accounts),
        _at_most(
            "waited, price + invalidate against TTL",
            usual[TOLD].waited_share,
            TOLD_WAITED,
            of=usual[TTL].waited_share,
        ),
        _at_most(
            "stale, price + invalidate against TTL",
            accounts[TOLD].stale_share,
            TOLD_STALE,
            of=accounts[TTL].stale_share,
        ),
        *_fresher(outcome),
        Check(
            not any(account.wrong for account in accounts.values()),
            f"values of another product: {sum(account.wrong for account in accounts.values())}",
        ),
    ]
    if outcome.outage is not None:
        again = outcome.hints_again
        after = "never" if again is None else f"{again:.2f} s after it was ready"
        found.append(Check(again is not None, f"hints reached the updater that was started again: {after}"))
    return found


def _same_load(accounts: Accounts) -> Check:
    reads = [accounts[lane].reads for lane in LANES]
    return Check(
        min(reads) >= LOAD_RATIO * max(reads) > 0, f"the same load: {', '.join(map(str, reads))} reads"
    )


def _budget_kept(outcome: Outcome) -> Check:
    """In each part of the run. Readers that wait load rows themselves: these are in the table, but not the updater's."""
    burst = outcome.budget * plan.BURST_S
    kept = [
        part.accounts[lane].updater_rows <= part.allowed + burst
        for _, part in parts(outcome)
        for lane in SERVED
    ]
    part = outcome.usual
    said = ", ".join(f"{lane.title} {part.accounts[lane].updater_rows}" for lane in SERVED)
    return Check(
        all(kept) and part.accounts[PRICE].updater_rows > 0,
        f"rows of the updater, in each part; as usual {part.allowed:.0f} and a burst of {burst:.0f}: {said}",
    )


def _nobody_waits(accounts: Accounts) -> Check:
    waited = [accounts[lane].waited for lane in (FIXED, PRICE)]
    return Check(not any(waited), f"reads that waited: fixed {waited[0]}, price {waited[1]}; none may")


def _unlike(outcome: Outcome) -> str:
    """Why the shares of stale reads cannot be compared; empty if they can. Its seconds are those of the part's title."""
    usual = outcome.usual
    rows = usual.accounts[FIXED].updater_rows
    if outcome.steered:
        return "the budget was changed by hand"
    if round(usual.seconds) < plan.SHORTEST_TO_COMPARE_S:
        return f"that takes at least {plan.SHORTEST_TO_COMPARE_S:.0f} s of the first part"
    if rows < TTL_ROWS[0] * usual.allowed:
        return f"the updater got too little of this machine to spend its budget: {rows} of {usual.allowed:.0f} rows"
    return ""


def _fresher(outcome: Outcome) -> Iterator[Check]:
    """`price` against the others, if the run allows a comparison."""
    accounts, unlike = outcome.usual.accounts, _unlike(outcome)
    if unlike:
        yield Check(None, f"stale, price against TTL and fixed: not compared, {unlike}")
        return
    least, most = (share * outcome.usual.allowed for share in TTL_ROWS)
    rows = accounts[TTL].rows
    yield Check(
        least <= rows <= most, f"rows of the TTL, {least:.0f} to {most:.0f} for a fair comparison: {rows}"
    )
    for lane in (TTL, FIXED):
        yield _at_most(
            f"stale, price against {lane.title}",
            accounts[PRICE].stale_share,
            FRESHER,
            of=accounts[lane].stale_share,
        )


def meaning(outcome: Outcome) -> Sequence[str]:
    """The meaning of the tables in plain words, losses included."""
    ttl, fixed, price, told = (outcome.usual.accounts[lane] for lane in LANES)
    said = [
        (
            f"Waiting. With a TTL {ttl.waited_share:.1%} of all reads waited for the database. Where an updater"
            " refreshes, none did: it replaces each value before a reader misses it."
        ),
        (
            "Spending. TTL and fixed spend their rows on all products that are read"
            f" ({ttl.stale_share:.1%} and {fixed.stale_share:.1%} stale). price spends the same rows on products that"
            f" are read and change ({price.stale_share:.1%} stale), and has learned by itself which these are."
        ),
        (
            f"Announcing. With invalidate after each commit {told.stale_share:.2%} were stale;"
            f" {told.waited_share:.2%} waited, between the removal of an old price and the arrival of the new one."
        ),
    ]
    if outcome.still is not None:
        ttl, fixed, price, told = (outcome.still.accounts[lane] for lane in LANES)
        said.append(
            "No gain. If the products that are read most do not change, and all others change alike, there is little to"
            " choose, and the learned rates are wrong at first:"
            f" {price.stale_share:.1%} stale with price, {fixed.stale_share:.1%} with fixed,"
            f" {ttl.stale_share:.1%} with the TTL."
        )
    if outcome.outage is not None:
        ttl, fixed, price, told = (outcome.outage.accounts[lane] for lane in LANES)
        said.append(
            f"Losses. While the updater was dead all values of fixed and price grew older, and the new updater had"
            f" to learn anew: {fixed.stale_share:.1%} and {price.stale_share:.1%} stale, {ttl.stale_share:.1%} with the TTL."
        )
    return said


def _at_most(what: str, value: float, ratio: float, *, of: float) -> Check:
    return Check(value <= ratio * of, f"{what}: {value:.2%}, at most {ratio * of:.2%}")
