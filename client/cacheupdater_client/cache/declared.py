"""One declared value: its pattern, its loader and its settings, checked when the application declares it.

`Cache.value` and `Cache.values` call `declare`. A `Declared` lives as long as its cache and never changes. It turns
a call's arguments into captures, and captures into the loader's arguments. `keys` makes the keys. It does no I/O.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Required, TypeAlias, TypedDict, cast, get_args, get_origin, get_type_hints

from cacheupdater_client.cache.ageing import HOLDS, Ageing, ageing_of
from cacheupdater_client.cache.codecs import NO_ANNOTATION, Codec, Format, Pair, codec_of, codec_of_pair
from cacheupdater_client.cache.errors import misdeclared
from cacheupdater_client.cache.keys import Keys
from cacheupdater_client.cache.places import place_of
from cacheupdater_client.protocol import durations
from cacheupdater_client.protocol.definitions import Definition, Spelling
from cacheupdater_client.protocol.errors import Misspelled
from cacheupdater_client.protocol.fence import LOAD_AGE_S
from cacheupdater_client.protocol.lease import LEASE_S_MAX, LEASE_S_MIN, Terms
from cacheupdater_client.protocol.patterns import Captures, Pattern

if TYPE_CHECKING:
    from cacheupdater_client.protocol.encoding import Encoding
    from cacheupdater_client.protocol.lease import Grace
    from cacheupdater_client.protocol.patterns import Capture
    from cacheupdater_client.protocol.spelling import Numbers, Times

Loader: TypeAlias = Callable[..., object]

TTL_S_MAX = 365 * 86_400.0
TIMEOUT = "10s"
MARK_S_MAX = 2.0 * LOAD_AGE_S  # the mark of an absent row is a floor, and a floor lives so long
# where an updater fills: longer than its refresh takes (3 s) and the gap after that, in which it declines misses
MARK_S_MIN_AWAITED = 5.0
_LOADERS = ("timeout", "refresh_after", "soft_timeout", "fail_safe")


class Keywords(TypedDict, total=False):
    """The keywords of `Cache.value` and `Cache.values`: `Settings` as a caller spells them."""

    ttl: Required[str]
    timeout: str
    missing: str
    encoding: Encoding
    numbers: Numbers
    times: Times
    codec: Pair
    source: str
    refresh_after: str
    soft_timeout: str
    fail_safe: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a declaration says beside its pattern. Durations are text, as in the configuration file."""

    ttl: str
    timeout: str | None = None  # the hard limit of one load; None: TIMEOUT
    missing: str = "30s"
    encoding: Encoding = "json"
    numbers: Numbers = "text"
    times: Times = "rfc3339"
    codec: Pair | None = None  # in the place of an encoding
    source: str | None = None  # the updater's budget for the loads; None: the only source that there is
    refresh_after: str | None = None  # an older value is loaded anew while readers get it
    soft_timeout: str | None = None  # how long these readers wait for the new value
    fail_safe: str | None = None  # how long beyond its ttl a value lives while its source fails

    @property
    def format(self) -> Format:
        return Format(self.encoding, self.numbers, self.times)


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared value. `batch`: its loader takes many keys at once."""

    name: str
    pattern: Pattern
    ttl_ms: int
    terms: Terms
    codec: Codec
    loader: Loader
    parameters: tuple[str, ...]  # of a loader of one key: the captures, in the loader's order
    batch: bool
    settings: Settings
    ageing: Ageing | None
    wait_s: float | None  # how long a reader waits for an updater's fill; None: the loader fills
    keys: Keys

    @property
    def timeout_s(self) -> float:
        """The hard timeout of one load, which is also the life of a lease."""
        return self.terms.lease_ms / 1000

    @property
    def hold_ms(self) -> int:
        """How long a value stays after its row has changed, where the application asks for that."""
        return HOLDS * self.terms.lease_ms

    @property
    def soft_s(self) -> float:
        """How long a reader of an old value waits for the new one."""
        return self.ageing.soft_ms / 1000 if self.ageing else 0.0

    @property
    def grace(self) -> Grace | None:
        """How long values live on while their source fails."""
        return self.ageing.grace if self.ageing else None

    @property
    def has_pattern_order(self) -> bool:
        """Whether a call's arguments, if none is named, are the captures as they stand."""
        return self.parameters == self.pattern.names

    def captures_of(self, args: tuple[object, ...], named: Mapping[str, object]) -> Captures:
        """The captures in the order of the pattern, from a call's arguments. TypeError as Python has it."""
        wanted = self.pattern.names
        given = {**dict(zip(self.parameters, args, strict=False)), **named}
        if len(args) + len(named) != len(wanted) or given.keys() != set(wanted):
            raise TypeError(f"{self.name}() takes {', '.join(self.parameters)}; got {len(given)} of them")
        return cast("Captures", tuple(given[name] for name in wanted))

    def arguments(self, captures: Captures) -> list[Capture]:
        """The arguments of a loader of one key."""
        by_name = dict(zip(self.pattern.names, captures, strict=True))
        return [by_name[name] for name in self.parameters]

    def items(self, captures: Sequence[Captures]) -> Sequence[Capture | Captures]:
        """The argument of a loader of many keys: captures that stand alone are themselves."""
        return [each[0] for each in captures] if len(self.pattern.names) == 1 else list(captures)

    def definition(self) -> Definition:
        """The same for an updater."""
        said = self.settings
        spelling = Spelling(
            self.codec.encode,
            self.codec.form,
            None if said.codec else said.encoding,
            said.numbers,
            said.times,
        )
        return Definition(
            self.name,
            self.pattern,
            place_of(self.loader),
            said.source,
            self.ttl_ms,
            self.terms.mark_ms,
            self.terms.lease_ms,
            self.grace.fail_safe_ms if self.grace else None,
            spelling,
            self.loader,
            self.batch,
            "self" in inspect.signature(self.loader).parameters,
            self.wait_s is not None,
            self.arguments,
        )

    def spelled(self, value: object) -> bytes | None:
        """The bytes in Redis; None for a row that does not exist. Inexpressible if the encoding cannot hold the value."""
        return None if value is None else self.codec.encode(value)


def declare(
    loader: Loader,
    pattern: str,
    settings: Settings,
    *,
    batch: bool,
    waits: bool,
    wait_s: float | None = None,
) -> Declared:
    """Checks a declaration. Raises Misdeclared, with the loader's file and line.

    `waits`: the loader is a coroutine function. `wait_s`: an updater fills, and a reader waits so long for it.
    """
    try:
        compiled = Pattern.compile(pattern)
    except Misspelled as e:
        raise misdeclared(loader, str(e)) from e
    _check_kind(loader, waits=waits)
    hints = _hints_of(loader)
    names = [name for name in inspect.signature(loader).parameters if name != "self"]
    if batch:
        _check_batch(loader, compiled, names, hints)
    else:
        _check_single(loader, compiled, names, hints)
    try:
        codec = _codec(settings, _result_of(hints, batch=batch))
        ms = partial(_ms, loader)
        ttl_ms = ms("ttl", settings.ttl, (0.001, TTL_S_MAX))
        if wait_s is not None:
            _check_awaited(settings)
        lease_ms = ms("timeout", settings.timeout or TIMEOUT, (LEASE_S_MIN, LEASE_S_MAX))
        ageing = ageing_of(settings, ttl_ms, lease_ms, ms)
    except (TypeError, ValueError) as e:
        raise misdeclared(loader, str(e)) from e
    name = getattr(loader, "__qualname__", repr(loader))
    return Declared(
        name,
        compiled,
        ttl_ms,
        Terms(
            lease_ms,
            ms("missing", settings.missing, (0.0 if wait_s is None else MARK_S_MIN_AWAITED, MARK_S_MAX)),
        ),
        codec,
        loader,
        compiled.names if batch else tuple(names),
        batch,
        settings,
        ageing,
        wait_s,
        Keys(name, compiled),
    )


def _check_awaited(settings: Settings) -> None:
    """Where an updater fills, nothing is loaded here that a setting could concern."""
    for name in _LOADERS:
        if getattr(settings, name) is not None:
            raise ValueError(
                f'{name} concerns loads by the application, and the cache has fill="updater"; leave it out here and'
                " say such things in the updater's configuration"
            )


def _codec(settings: Settings, result: object) -> Codec:
    if settings.codec is None:
        return codec_of(settings.format, result)
    if settings.format != Format():
        raise ValueError("a codec says itself how values are spelled; leave out encoding, numbers and times")
    pair: object = settings.codec  # whatever an application without types has written
    if not isinstance(pair, tuple) or len(pair) != 2 or not all(map(callable, pair)):
        raise TypeError("codec must be a pair of functions, (encode, decode)")
    return codec_of_pair(settings.codec)


def _ms(loader: Loader, name: str, text: str, bounds: tuple[float, float]) -> int:
    seconds = durations.parsed(str(text))
    least, most = bounds
    if seconds is None or not least <= seconds <= most:
        raise misdeclared(
            loader, f"{name} must be {durations.FORM}, from {least:g}s to {most:g}s; got {text!r}"
        )
    return int(seconds * 1000)


def _check_kind(loader: Loader, *, waits: bool) -> None:
    if not callable(loader):
        raise TypeError(f"a loader must be a function, got {type(loader).__name__}")
    if inspect.iscoroutinefunction(inspect.unwrap(loader)) != waits:
        need = "an `async def`, as the cache is asyncio's" if waits else "a plain function"
        other = "cacheupdater_client.Cache" if waits else "cacheupdater_client.asyncio.Cache"
        raise misdeclared(loader, f"the loader must be {need}; {other} takes the other kind")


def _hints_of(loader: Loader) -> Mapping[str, object]:
    try:
        return get_type_hints(inspect.unwrap(loader))
    except NameError as e:
        raise misdeclared(loader, f"an annotation names something that cannot be found: {e}") from e


def _check_single(
    loader: Loader, pattern: Pattern, names: Sequence[str], hints: Mapping[str, object]
) -> None:
    if set(names) != set(pattern.names):
        raise misdeclared(
            loader,
            f"the pattern {pattern.text!r} captures {', '.join(pattern.names)}; the loader takes {', '.join(names) or 'nothing'}",
        )
    for name, kind in zip(pattern.names, pattern.types, strict=True):
        if hints.get(name) is not kind:
            raise misdeclared(
                loader, f"annotate {name} as {kind.__name__}, as the pattern {pattern.text!r} has it"
            )


def _check_batch(loader: Loader, pattern: Pattern, names: Sequence[str], hints: Mapping[str, object]) -> None:
    if len(names) != 1:
        raise misdeclared(
            loader,
            f"a loader of many keys takes one list of them; this one takes {', '.join(names) or 'nothing'}",
        )
    one = pattern.types[0] if len(pattern.types) == 1 else tuple[pattern.types]  # type: ignore[name-defined]
    asked = hints.get(names[0])
    if get_origin(asked) not in (list, Sequence) or get_args(asked) != (one,):
        shown = one.__name__ if len(pattern.types) == 1 else str(one)
        raise misdeclared(
            loader, f"annotate {names[0]} as list[{shown}], as the pattern {pattern.text!r} has it"
        )


def _result_of(hints: Mapping[str, object], *, batch: bool) -> object:
    """The type of one value. A batch gives a mapping of them."""
    result = hints.get("return", NO_ANNOTATION)
    if not batch:
        return result
    inner = get_args(result)
    return inner[1] if len(inner) == 2 else NO_ANNOTATION
