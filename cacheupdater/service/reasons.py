"""Why a value is old, in plain words, from the facts that the configuration, Redis and the running updater give of its key.

`cacheupdater explain` calls `because` once. It is pure: facts in, sentences out, the most telling first. The reference of the
command explains each sentence, and a test provokes each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from cacheupdater_client.protocol.patterns import Pattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TypeAlias

    from cacheupdater_client.protocol.patterns import CaptureType

    Facts: TypeAlias = Mapping[str, object]


_TAKES: Mapping[CaptureType, str] = {
    int: "`int` takes whole numbers of 64 bits, without zeros or a sign to spare",
    str: "`str` takes ASCII without spaces and colons",
    UUID: "`uuid` takes lower case with hyphens",
}
_OF_SENDERS = frozenset(
    {"no_client", "no_hint", "nobodys", "elsewhere", "rejected", "lost", "late", "clock_off"}
)
"""Troubles with hints on their way. They may have nothing to do with this key, so they come last."""


def because(
    declared: Facts, redis: Facts, updater: Facts | None, row: Facts | None, *, asked: bool = True
) -> list[str]:
    """The reasons: at least one sentence. `asked`: if the updater says nothing, it was asked and did not answer."""
    said = [*_undeclared(declared)]
    if said:
        return said
    foreign = list(_foreign(declared, redis))
    ours = list(_ours(declared, redis))
    said += foreign + ours + list(_row(redis, row, comparable=not (foreign or ours)))
    if updater is None:
        said.append(_silent(asked=asked))
    else:
        said += _updater(declared, updater, left_alone=bool(foreign) and declared["foreign"] == "keep")
    said += _redis(redis, asked=_refreshes_a_miss(updater))
    return said or ["Nothing stands in the way: the next hint of this key leads to a refresh."]


def _silent(*, asked: bool) -> str:
    why = (
        "has answered about this key"
        if asked
        else "was asked, for the configuration has no address of one (`admin`)"
    )
    return f"No updater {why}, so nothing is known of its hints, refreshes and troubles."


def _undeclared(declared: Facts) -> Iterator[str]:
    if not declared["spelled"]:
        yield (
            "The key fits no pattern, so no updater refreshes it: a key of a namespace holds only ASCII letters, digits"
            " and signs, and no space."
        )
    elif declared["namespace"] is None:
        why = (
            "fits none of the patterns that begin like it" if declared["begins"] else "begins like no pattern"
        )
        yield f"No namespace has this key: it {why}, so no updater refreshes it.{_alike(declared.get('alike'))}"
        if full := declared.get("full"):
            yield f"The application's framework puts something before its keys: in Redis it is {full}. Ask about that."
    elif not declared["fits"]:
        yield (
            f"The key begins like namespace {declared['namespace']} and does not fit its pattern"
            f" {declared['pattern']}, so no updater refreshes it: {_takes(str(declared['pattern']))}."
        )


def _takes(pattern: str) -> str:
    """What the captures of a pattern take, each type once."""
    return ", and ".join(_TAKES[each] for each in dict.fromkeys(Pattern.compile(pattern).types))


def _alike(patterns: object) -> str:
    match patterns:
        case [one]:
            return f" The pattern that looks most like it is {one}."
        case [one, other]:
            return f" The patterns that look most like it are {one} and {other}."
    return ""


def _foreign(declared: Facts, redis: Facts) -> Iterator[str]:
    encoding, found = declared["encoding"], redis.get("reads_as")
    if found is None or encoding not in {"json", "hash"} or found == encoding or redis.get("wrote"):
        return
    what = f"The value reads as {found}, and the namespace writes {encoding}"
    if declared["foreign"] == "keep":
        yield f"{what}: such a value is left alone, unless `value.foreign: replace` says otherwise."
    else:
        yield f"{what}: its next refresh replaces it."


def _ours(declared: Facts, redis: Facts) -> Iterator[str]:
    """The floor proves that we wrote it, so `value.foreign` does not protect it."""
    wrote = redis.get("wrote")
    if wrote is not None and wrote != declared["form"]:
        yield (
            f"The value reads as {wrote}, and the namespace writes {declared['encoding']}: it is ours, so its next"
            " refresh replaces it."
        )


def _row(redis: Facts, row: Facts | None, *, comparable: bool) -> Iterator[str]:
    if row is None:
        return
    if not row.get("exists", True):
        yield "Its source has no such row."
    if "same" not in row or not comparable:
        return
    if differs := row.get("differs"):
        fields = ", ".join(map(str, differs)) if isinstance(differs, list) else ""
        yield f"The application wrote it in another way than we would: {fields}."
    elif row["same"]:
        yield "It is not old: what Redis has is what the source has."
    elif redis.get("type") != "none":
        yield "It is old: the source has another value than Redis."


def _updater(declared: Facts, updater: Facts, *, left_alone: bool) -> Iterator[str]:
    if not updater["accepting"]:
        yield "The updater accepts no hints now: it is starting, stopping, or waits for its queue."
    if (known := updater.get("namespace", declared["namespace"])) != declared["namespace"]:
        yield _otherwise(str(declared["namespace"]), known)
    paused = _some(updater.get("paused"))
    if paused is not None:
        yield _paused(str(declared["namespace"]), paused)
    troubles = [each for each in _each(updater["troubles"]) if each["event"] != "paused"]
    yield from (_trouble(each) for each in troubles if each["event"] not in _OF_SENDERS)
    if (lives_on := updater.get("lives_on")) is not None:
        yield (
            "Its source fails now, so the old value lives on while it is read, until its load is"
            f" {_lasted(lives_on)} ago (fail_safe)."
        )
    yield from _held(declared, updater, left_alone=left_alone) if updater["ours"] else _elsewhere(updater)
    yield from (_trouble(each) for each in troubles if each["event"] in _OF_SENDERS)


def _otherwise(name: str, known: object) -> str:
    """The updater has not taken over the file that was asked about, or it has another one."""
    there = f"namespace {known}" if known else "no namespace, so the updater drops its hints"
    return (
        "The updater runs with another configuration than this file."
        f" In the file the key belongs to namespace {name}, in the updater to {there}."
        " `cacheupdater reload` takes the file over, or says why not."
    )


def _trouble(trouble: Facts) -> str:
    text = str(trouble["text"]).rstrip(".")
    stop = "" if text.endswith("?") else "."
    return f"Trouble for {_lasted(trouble['seconds'])}: {trouble['event']}: {text}{stop}"


def _held(declared: Facts, updater: Facts, *, left_alone: bool) -> Iterator[str]:
    """What the owner of the key's partition knows."""
    yield from _barred(updater)
    seat = _some(updater["seat"])
    if _loads_nothing(updater) and (seat is None or seat["state"] != "running"):
        return
    if seat is not None:
        yield from _seated(seat)
        if seat["state"] == "due":
            yield from _short(updater)
    elif not (left_alone or _was_left_alone(updater)):
        yield from _unasked(declared, updater)


def _loads_nothing(updater: Facts) -> bool:
    """Whether no hint leads to a load now: of the whole namespace, or of this key."""
    left_alone = bool(updater.get("left_alone"))
    return left_alone or any(_some(updater.get(each)) for each in ("paused", "quarantined"))


def _paused(name: str, paused: Facts) -> str:
    lasted = "" if paused["since"] is None else f" for {_lasted(paused['since'])}"
    return (
        f"Namespace {name} is paused{lasted}, by {paused['by']}: nothing of it is loaded, and announced changes only remove;"
        f" `cacheupdater resume {name}` ends that."
    )


def _was_left_alone(updater: Facts) -> bool:
    """Whether the key's last refresh left its value alone. The next one would do the same."""
    last = _some(updater["last"])
    return last is not None and last["result"] == "foreign"


def _elsewhere(updater: Facts) -> Iterator[str]:
    owner = updater["owner"]
    if updater["partition"] is None:
        return  # the queue was not found yet: nobody knows the key's partition
    if owner is None:
        yield f"No updater has partition {updater['partition']}, to which the key belongs."
    else:
        yield (
            f"Partition {updater['partition']} belongs to another updater, {owner}: ask that one."
            f"{_until_others_own_it(updater)}"
        )


def _until_others_own_it(updater: Facts) -> str:
    """An owner that was killed is named until its session is over."""
    session = updater.get("session")  # an older updater does not tell
    if session is None:
        return ""
    return (
        " If it does not answer, others take over its partitions once it has been silent for"
        f" {_lasted(session)}."
    )


def _barred(updater: Facts) -> Iterator[str]:
    barred = _some(updater["quarantined"])
    if barred is not None:
        left, error = _lasted(barred["left"]), barred["error"]
        if barred.get("refused"):
            yield (
                f"The key is in quarantine: it fails ({error}), and no load of its namespace has succeeded since"
                f" it failed first. Hints try it again in {left}, or once such a load succeeds. Until then, each partition tries one of"
                " these keys every 2 s."
            )
        else:
            yield f"The key is in quarantine: it has failed by itself again and again ({error}); hints try it again in {left}."
    if updater["absent"]:
        yield "Its row is known to be absent: misses do not ask the source again for a while."
    if updater["full"] and not any(each["event"] == "full" for each in _each(updater["troubles"])):
        yield f"The partition is full: {updater['open']} keys are open, and no hint is read before some are done."


def _seated(seat: Facts) -> Iterator[str]:
    if seat["state"] == "due":
        yield f"A refresh is due since {_lasted(seat['since'])} (a {seat['kind']}) and waits for {seat['waits_for']}."
    elif seat["state"] == "running":
        behind = f", and a {seat['tail']} waits behind it" if seat["tail"] else ""
        yield f"A refresh runs since {_lasted(seat['since'])}: it waits for {seat['waits_for']}{behind}."
    else:
        yield f"It was refreshed {_lasted(seat['since'])} ago, and reads wait for {seat['waits_for']}."


def _unasked(declared: Facts, updater: Facts) -> Iterator[str]:
    policy = _some(updater["policy"])
    if policy is None:
        return
    if policy["name"] == "fixed":
        yield f"No hint of the key waits: the next read asks for a refresh (every {_lasted(policy['every'])} at most)."
        yield from _short(updater)
        return
    known = _some(policy["known"])
    if known is None and (updater["absent"] or updater["last"]):
        return  # it has been asked for; without a row, a policy forgets it again
    if known is None:
        yield (
            "No hint of this key has come yet: nobody has read it through our client, or the client's hints go elsewhere"
            f" (does `emit` name this updater, and do the client's keys begin like {declared['pattern']}?)."
        )
    elif _number(known["worth"]) < _number(known["price"]):
        yield (
            f"A load is not worth its row now: it would prevent {_number(known['worth']):.2g} stale reads, and rows go where"
            f" they prevent {_number(known['price']):.2g} ({_number(known['reads']):.2g} reads/s,"
            f" {_number(known['changes']):.2g} changes/s, as learned)."
        )
    else:
        yield "A load is worth its row: the policy asks for it at the next hint or tick, as the budget allows."
    if known is not None:
        yield from _short(updater)


def _short(updater: Facts) -> Iterator[str]:
    """What pays for less than is asked, and for how long a load may have to wait for it."""
    short = _some(updater.get("short"))  # an older updater does not tell
    if short is None:
        return
    whose = f"source {short['of']}" if short["whose"] == "budget" else f"namespace {short['of']}"
    yield (
        f"The {short['whose']} of {whose} pays for {_paid(short)}, and {_waiting(short)}. {_given_up(updater, short)}"
        f" `{_setting(short)}` changes the rate."
    )


def _paid(short: Facts) -> str:
    rate = _number(short["rate"])
    if short["timed"]:
        return f"{rate:.4g} ms of database time a second"
    if rate < 1.5:
        return f"a row each {_lasted(1.0 / rate)}"
    return f"{rate:.4g} rows a second" if rate < 1000 else f"{rate:,.0f} rows a second"


def _waiting(short: Facts) -> str:
    waiting, lasts = _number(short["waiting"]), _lasted(short["seconds"])
    if round(waiting) == 0:
        return f"is spent: about {lasts} until the next load"
    if short["timed"]:
        return f"loads of {waiting:,.0f} ms wait for it: about {lasts} for all of them"
    if round(waiting) == 1:
        return f"1 key waits for it, for about {lasts}"
    return f"{waiting:,.0f} keys wait for it: about {lasts} for all of them"


def _given_up(updater: Facts, short: Facts) -> str:
    """Whether hints are dropped because they wait for so long."""
    if any(each["event"] == "dropped" for each in _each(updater["troubles"])):
        return "Hints are dropped now (trouble `dropped`)."
    if _number(short["seconds"]) > _number(short["given_up"]):
        return f"A hint that has waited for {_lasted(short['given_up'])} is dropped."
    return "No hint is dropped now."


def _setting(short: Facts) -> str:
    """The setting that makes it pay for more."""
    if short["whose"] == "quota":
        return f"namespaces.{short['of']}.quota.rate"
    return f"sources.{short['of']}.{'db_time' if short['timed'] else 'budget'}"


def _refreshes_a_miss(updater: Facts | None) -> bool:
    """Whether the updater loads the key for its next miss, as far as is known."""
    return updater is None or not (_loads_nothing(updater) or updater.get("absent"))


def _redis(redis: Facts, *, asked: bool) -> Iterator[str]:
    """`asked`: a miss asks for a refresh."""
    if "error" in redis:
        yield f"{redis['error']}"
    elif redis["type"] == "none":
        yield "Redis has no value" + (
            ": the next read is a miss, which asks for a refresh first." if asked else "."
        )
    elif redis["age"] is None:
        yield "No floor stands beside the value: no updater has written it lately, or it is not ours."
    if redis.get("type") not in {None, "none"} and redis.get("ttl") is None:
        yield "The value never expires: what updaters write has a ttl."


def _lasted(seconds: object) -> str:
    value = _number(seconds)
    return f"{value:.1f} s" if value < 120.0 else f"{value / 60.0:.0f} min"


def _number(value: object) -> float:
    return float(str(value))


def _some(value: object) -> Facts | None:
    return value if isinstance(value, dict) else None


def _each(value: object) -> list[Facts]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
