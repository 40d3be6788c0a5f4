"""What a reload would change: the settings of a running updater beside those of a file that it does not have yet.

`cacheupdater reload --dry-run` prints a `Preview`. It shows values, where `difference` names sections: both find the same. The
functions are pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cacheupdater import masking
from cacheupdater.config.spelled import SECTIONS, usual

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


class Change(NamedTuple):
    """One setting. None: it is not set, and has no default."""

    setting: str
    was: str | None
    now: str | None


class Preview(NamedTuple):
    """Names such as `sources.shop`, and the changed settings of those that are in both."""

    added: tuple[str, ...]
    changed: tuple[Change, ...]
    removed: tuple[str, ...]
    restart: tuple[Change, ...]
    """Settings that need a restart: a reload would refuse the whole file."""


def preview(running: Mapping[str, str], read: Mapping[str, str], unlike: Collection[str] = ()) -> Preview:
    """`unlike` names the settings that differ in what is not shown."""
    was, now = _sections(running), _sections(read)
    changed, restart = list[Change](), list[Change]()
    for one in _changes(running, read, unlike):
        section = section_of(one.setting)
        if section is None:
            restart.append(one)
        elif section in was and section in now:
            changed.append(one)
    added = tuple(each for each in now if each not in was)
    removed = tuple(each for each in was if each not in now)
    return Preview(added, tuple(changed), removed, tuple(restart))


def uncertain(running: Mapping[str, str], read: Mapping[str, str]) -> list[str]:
    """The settings of both whose texts hide something, so that they cannot be compared as they are."""
    return [
        name
        for name, text in read.items()
        if name in running and (masking.MASK in text or masking.MASK in running[name])
    ]


def section_of(setting: str) -> str | None:
    """`namespaces.product` of `namespaces.product.ttl.base`; None if the setting belongs to no section."""
    first, _, rest = setting.partition(".")
    return f"{first}.{rest.partition('.')[0]}" if first in SECTIONS else None


def _sections(settings: Mapping[str, str]) -> dict[str, None]:
    return dict.fromkeys(section for each in settings if (section := section_of(each)) is not None)


def _changes(
    running: Mapping[str, str], read: Mapping[str, str], unlike: Collection[str]
) -> Iterator[Change]:
    hidden = set(uncertain(running, read))
    for name in dict.fromkeys((*running, *read)):
        differs = name in unlike if name in hidden else running.get(name) != read.get(name)
        if differs:
            yield Change(name, running.get(name, usual(name)), read.get(name, usual(name)))
