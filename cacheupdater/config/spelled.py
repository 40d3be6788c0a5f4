"""A configuration spelled out again, setting by setting: `sources.shop.budget` is `500/s`.

The admin page `/configuration` shows a running updater's settings this way, and `cacheupdater reload --dry-run` compares them with
those of a file. Settings that are as by default are left out, so that ten thousand namespaces make a small page. What may not be
shown is compared by digests (`digest`). Pure functions: nothing is read or contacted.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Annotated, NamedTuple, get_args, get_origin
from urllib.parse import urlencode

from pydantic import BeforeValidator
from pydantic_core import PydanticUndefined

from cacheupdater import masking
from cacheupdater.config import fields, units
from cacheupdater.config.feeds import FeedSection
from cacheupdater.config.models import (
    FrameworkSection,
    LoadSection,
    NamespaceSection,
    SourceSection,
)
from cacheupdater.config.queues import KafkaQueueConfig, SqlQueueConfig, StreamsQueueConfig
from cacheupdater.config.secrets import Url
from cacheupdater.config.section import Section
from cacheupdater.core import depot_url
from cacheupdater_client.protocol import streams
from cacheupdater_client.protocol.patterns import Pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pydantic.fields import FieldInfo

    from cacheupdater.config.queues import QueueConfig
    from cacheupdater.config.settings import Config

SECTIONS = ("sources", "namespaces")
"""The parts of a file whose settings are named by two words before their own: `namespaces.product.ttl.base`."""

# scrypt's work: some 10 ms for one guess at a password, and 4 MiB
_WORK = {"n": 1 << 12, "r": 8, "p": 1, "dklen": 16}


_PLAIN = re.compile(r"[\w.]+")  # what means the same in quotes and without


class Spelled(NamedTuple):
    """The text of one setting."""

    whole: str  # with passwords: for comparisons in this process alone
    shown: str


def spelled(config: Config) -> dict[str, Spelled]:
    """All settings that are not as by default, by name."""
    return {**dict(_of_the_top(config)), **dict(_of_sections(config))}


def usual(setting: str) -> str | None:
    """The default of a setting of a source or a namespace; None if it has none."""
    section, _, name = setting.partition(".")
    found = _USUAL.get(section, {}).get(name.partition(".")[2])
    return None if found is None else found.shown


def digest(text: str, salt: bytes) -> str:
    """What tells two texts apart and shows neither. A guess at a password costs as much as this call."""
    return hashlib.scrypt(text.encode(), salt=salt, **_WORK).hex()


def _of_the_top(config: Config) -> Iterator[tuple[str, Spelled]]:
    """By the names of `service.difference.RESTART`."""
    yield "queue", _url(_queue_url(config.queue))
    yield "cache", _url(config.cache.reveal())
    yield "log_keys", _text(config.log_keys)
    if config.listen:
        yield "listen", _text(", ".join(map(str, config.listen)))
    if config.admin:
        yield "admin", _text(config.admin.host_port)
    if config.admin_token:
        yield "admin.token_file", Spelled(config.admin_token, masking.MASK)
    if config.state:
        yield "state", _text(config.state)
    if config.fleet:
        yield "fleet", _text(config.fleet)


def _queue_url(queue: QueueConfig) -> str:
    if isinstance(queue, StreamsQueueConfig):
        return f"{streams.spelled(queue.address)}&session_timeout={queue.session:g}s"
    if isinstance(queue, SqlQueueConfig):
        return f"{depot_url.url_of(queue.address)}&session_timeout={queue.session:g}s"
    if not isinstance(queue, KafkaQueueConfig):
        return f"memory://?partitions={queue.partitions}"
    options = urlencode(sorted(queue.address.options.items()), safe="/:,")
    return f"{queue.address}?{options}" if options else str(queue.address)


def _of_sections(config: Config) -> Iterator[tuple[str, Spelled]]:
    for name, source in config.sources.items():
        yield from _leaves(source, f"sources.{name}.")
    for name, namespace in config.namespaces.items():
        yield from _leaves(namespace, f"namespaces.{name}.")


def _leaves(section: Section, before: str) -> Iterator[tuple[str, Spelled]]:
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, FeedSection):  # a feed whose settings are as by default shows by its kind alone
            yield before + name, _text(value.kind)
        if isinstance(value, Section):
            yield from _leaves(value, f"{before}{name}.")
        elif value not in (None, field.default):
            yield before + name, _value(value, field)


def _defaults(model: type[Section], before: str = "") -> Iterator[tuple[str, Spelled]]:
    for name, field in model.model_fields.items():
        if isinstance(field.default, Section):
            yield from _defaults(type(field.default), f"{before}{name}.")
        elif field.default not in (None, PydanticUndefined):
            yield before + name, _value(field.default, field)


def _value(value: object, field: FieldInfo) -> Spelled:
    if isinstance(value, Url):
        return _url(value.reveal())
    if isinstance(value, Pattern):
        return _text(value.text)
    if isinstance(value, tuple):
        said = ", ".join(map(_in_file, value))
        return _text(said if value and isinstance(value[0], str) else f"[{said}]")
    said = f"{value!r}".removesuffix(".0") if isinstance(value, float) else str(value)
    readers = set(_readers(field.annotation, field.metadata))
    if isinstance(value, float) and readers & _SHARES:
        said = f"{100 * value:.12g}"
    return _text(said + next((unit for reader, unit in _UNITS.items() if reader in readers), ""))


def _in_file(value: object) -> str:
    """As YAML in a line: a section without what is not set, or a text, in quotes if it has several words."""
    if isinstance(value, Section):
        return _braced((name, getattr(value, name)) for name in type(value).model_fields)
    if isinstance(value, dict):
        return _braced(sorted(value.items()))  # two dicts in another order are equal
    said = str(value)
    return said if _PLAIN.fullmatch(said) else json.dumps(said, ensure_ascii=False)


def _braced(pairs: Iterable[tuple[str, object]]) -> str:
    return "{" + ", ".join(f"{name}: {_in_file(value)}" for name, value in pairs if value is not None) + "}"


_SHARES = {fields.jitter, fields.missing_share, fields.target}
_UNITS: dict[object, str] = {
    units.duration: "s",
    fields.max_age: "s",
    units.rate: "/s",
    units.database_time: "s/s",
    fields.jitter: "%",
    fields.missing_share: "%",
    fields.target: "%",
}
"""The unit of what each validator reads."""


def _readers(annotation: object, metadata: list[object]) -> Iterator[Callable[..., object]]:
    """The functions that read the text of a field. Those of a field that may be None stand inside its annotation."""
    for each in metadata:
        if isinstance(each, BeforeValidator):
            yield each.func
    for part in get_args(annotation):
        if get_origin(part) is Annotated:
            yield from _readers(None, list(part.__metadata__))


def _text(said: str) -> Spelled:
    return Spelled(said, masking.text(said))


def _url(said: str) -> Spelled:
    return Spelled(said, masking.url(said))


_USUAL = {
    "sources": dict(_defaults(SourceSection)),
    "namespaces": {
        **dict(_defaults(NamespaceSection)),
        **dict(_defaults(LoadSection, "load.")),
        **dict(_defaults(FrameworkSection, "framework.")),
    },
}
