"""Which keys a row has, by the rules that the application gives to `watch`: patterns such as `product:{id}`, or callables.

`watch` makes the rules once. The hooks apply them to each changed row: to the row before the change, and to the row after
it. So a key that holds a changed column is named twice, old and new. A rule reads no database and keeps no state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from types import SimpleNamespace
from typing import TypeAlias, cast

from cacheupdater_client.protocol.patterns import Pattern

KEYS_PER_ROW_MAX = (
    1000  # keys that a callable may name for one row: a callable that never ends must not hang a commit
)

Key: TypeAlias = str | bytes
Row: TypeAlias = Mapping[str, object]
"""The values of a row's columns, by the names that the model has for them."""
Namer: TypeAlias = Callable[[SimpleNamespace], Iterable[Key]]
"""Gets a row, whose columns are attributes, and names its keys."""
Naming: TypeAlias = str | Namer | Sequence[str | Namer]


class TooManyKeys(ValueError):
    """A callable named more keys for one row than KEYS_PER_ROW_MAX. Watch the rows by another model, or name fewer keys."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The keys of the rows of one model."""

    model: type
    patterns: tuple[Pattern, ...]
    namers: tuple[Namer, ...]

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns that the keys depend on. None: any column, because a callable may read each."""
        if self.namers:
            return None
        return tuple(dict.fromkeys(chain.from_iterable(pattern.names for pattern in self.patterns)))

    def keys(self, row: Row) -> Iterator[Key]:
        """The keys of this row. A pattern with a column of None names nothing."""
        for pattern in self.patterns:
            values = [row[name] for name in pattern.names]
            if None not in values:
                yield _spelled(pattern, values)
        for namer in self.namers:
            named = list(islice(namer(SimpleNamespace(**row)), KEYS_PER_ROW_MAX + 1))
            if len(named) > KEYS_PER_ROW_MAX:
                raise TooManyKeys(f"a callable named more than {KEYS_PER_ROW_MAX} keys for one row")
            yield from named


def rule_of(model: type, naming: Naming) -> Rule:
    """The rule that the application has written for a model. ValueError if a pattern is misspelled."""
    if not isinstance(model, type):
        raise TypeError(f"watch takes models (classes) and their keys, not {model!r}")
    parts: Sequence[object] = naming if isinstance(naming, (list, tuple)) else [naming]
    for part in parts:
        if not (isinstance(part, str) or callable(part)):
            raise TypeError(f"{model.__name__}: keys are patterns or callables, not {part!r}")
    patterns = tuple(Pattern.compile(part) for part in parts if isinstance(part, str))
    namers = tuple(cast("Namer", part) for part in parts if not isinstance(part, str))
    return Rule(model, patterns, namers)


def check_columns(rule: Rule, known: Iterable[str]) -> None:
    """ValueError if a pattern names something that is no column of the model."""
    names = set(known)
    for name in chain.from_iterable(pattern.names for pattern in rule.patterns):
        if name not in names:
            raise ValueError(
                f"{rule.model.__name__} has no column {name!r}; its columns are {', '.join(sorted(names))}"
            )


def _spelled(pattern: Pattern, values: Sequence[object]) -> str:
    """The key as an f-string of the application spells it, also where the updater's pattern would not take the key."""
    literals = (literal.decode() for literal in pattern.literals)
    return "".join(chain.from_iterable(zip_longest(literals, map(str, values), fillvalue="")))
