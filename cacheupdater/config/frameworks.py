"""What distinguishes the frameworks that `framework:` of a namespace may name: their settings, keys and serializers.

`models` asks for defaults and for the beginning of keys, `checks` for what a namespace may say. Adding a framework means one line in
each table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.config.choices import Framework, Serializer
    from cacheupdater_client.protocol.fence import Form

SETTINGS: Mapping[Framework, frozenset[str]] = {
    "django": frozenset(("key_prefix", "version", "protocol")),
    "django-redis": frozenset(("key_prefix", "version", "protocol")),
    "flask-caching": frozenset(("key_prefix", "protocol")),
    "dogpile": frozenset(("key_prefix", "serializer", "protocol")),
    "cashews": frozenset(("prefix", "serializer")),
    "aiocache": frozenset(("namespace", "serializer", "protocol")),
}
"""The settings beside `kind`."""

SERIALIZERS: Mapping[Framework, Sequence[Serializer]] = {
    "django": ("pickle",),
    "django-redis": ("pickle",),
    "flask-caching": ("pickle",),
    "dogpile": ("pickle", "json"),
    "cashews": ("pickle", "json"),
    "aiocache": ("json", "pickle", "string", "msgpack"),
}
"""What may spell the values; what the framework uses by itself comes first."""

PROTOCOLS: Mapping[Framework, int] = {
    "django": 5,
    "django-redis": 4,
    "flask-caching": 5,
    "dogpile": 4,
    "cashews": 5,
    "aiocache": 4,
}
"""Of pickles: Python's highest, or its default before Python 3.14."""

FORMS: Mapping[tuple[Framework, Serializer], Form] = {
    ("flask-caching", "pickle"): "cachelib",
    ("dogpile", "pickle"): "dogpile",
    ("dogpile", "json"): "dogpile-json",
}
"""How the fence recognises values that have something before what their serializer makes."""

_PREFIXES: Mapping[Framework, str] = {
    "flask-caching": "flask_cache_"
}  # of a framework that has one by itself


def before(kind: Framework, said: Mapping[str, str | None], version: int) -> str:
    """What stands before the application's key. `said` has the settings by name."""
    if "key_prefix" in SETTINGS[kind]:
        prefix = said["key_prefix"]
        prefix = _PREFIXES.get(kind, "") if prefix is None else prefix
        return f"{prefix}:{version}:" if "version" in SETTINGS[kind] else prefix
    first = said["prefix" if kind == "cashews" else "namespace"]
    return f"{first}:" if first else ""


def mistakes(kind: Framework, said: frozenset[str], serializer: Serializer | None) -> Mapping[str, str]:
    """What is wrong, by setting. `said` has the names that the file has."""
    allowed = ", ".join(sorted(SETTINGS[kind]))
    strange = said - SETTINGS[kind] - {"kind"}
    wrong = dict.fromkeys(strange, f"is no setting of {kind}, which has {allowed}")
    known = SERIALIZERS[kind]
    if serializer and "serializer" not in wrong and serializer not in known:
        wrong["serializer"] = f"is {' or '.join(known)} for {kind}"
    if "protocol" in said and "protocol" not in wrong and (serializer or known[0]) != "pickle":
        wrong["protocol"] = "is for pickles; say serializer: pickle, or remove it"
    return wrong
