"""A typical shop that caches hashes: `hset(mapping=...)` if `hgetall` finds nothing. It knows nothing of cacheupdater.

Redis takes only texts and numbers, so the shop spells each field: `str()` of everything, or field by field. Readers depend on
the spelling: `== "True"`, `int(...)`, `strptime(...)`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

LIVES_S = 300
_TRUTH = {"True": True, "False": False}


def _worded(row):
    return {name: str(value) for name, value in row.items() if value is not None}


def _typed(row):
    spelled = {
        **row,
        "price": float(row["price"]),
        "in_stock": int(row["in_stock"]),
        "added": row["added"].isoformat(),
        "updated_at": row["updated_at"].isoformat(),
        "note": row["note"] or "",
    }
    if row["discount"] is None:
        del spelled["discount"]
    else:
        spelled["discount"] = float(row["discount"])
    return spelled


def _read_worded(fields):
    return {
        "price": Decimal(fields["price"]),
        "in_stock": _TRUTH[fields["in_stock"]],
        "updated_at": datetime.strptime(fields["updated_at"], "%Y-%m-%d %H:%M:%S%z"),
        "note": fields.get("note"),
    }


def _read_typed(fields):
    return {
        "price": float(fields["price"]),
        "discount": float(fields.get("discount", 0)),
        "in_stock": bool(int(fields["in_stock"])),
        "updated_at": datetime.strptime(fields["updated_at"], "%Y-%m-%dT%H:%M:%S+00:00").replace(tzinfo=UTC),
        "note": fields["note"] or None,
    }


WAYS = {
    "worded": (_worded, _read_worded),
    "typed": (_typed, _read_typed),
    "spelled": (_worded, _read_worded),  # the updater spells it by a Python loader
}


class Shop:
    """`cache` is a redis.Redis that decodes its answers; `row` loads one product."""

    def __init__(self, cache, row):
        self._cache = cache
        self._row = row

    def product(self, way, shop, number):
        write, read = WAYS[way]
        key = f"{way}:{shop}:{number}"
        cached = self._cache.hgetall(key)
        if not cached:
            self._cache.hset(key, mapping=write(self._row(number)))
            self._cache.expire(key, LIVES_S)
            cached = self._cache.hgetall(key)
        return read(cached)
