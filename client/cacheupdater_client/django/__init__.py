"""`watch` for Django: whatever the models' own methods change is invalidated after the commit, and forgotten by a rollback.

    from cacheupdater_client.django import watch
    watch({Product: "product:{id}", Price: ["price:{sku}", "product:{product_id}"]}, redis=r)

An application calls it once, in the `ready` of an AppConfig. It needs Django 5.2; the rest of the client does not. Signals tell
of `save`, `delete` and cascades. Django sends none for `update`, `bulk_update` and `bulk_create`, so these methods of QuerySet
are wrapped. Raw SQL, triggers and other programs are not seen. `docs/how-to/never-forget.md` says more.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from cacheupdater_client.django.hooks import Hooks
from cacheupdater_client.watching.announcing import Client, Watch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater_client.watching.rules import Naming
    from cacheupdater_client.watching.writing import Writable

__all__ = ["Watch", "watch"]


def watch(keys: Mapping[type, Naming], *, redis: Client, write_through: Sequence[Writable] = ()) -> Watch:
    """Invalidates the keys of changed rows after each commit, in every database of the settings.

    `keys` says for each model which keys its rows have: patterns of columns (`product_id`, not `product`), or callables that
    get a row. `write_through` takes values that a `Cache` declares: after the invalidation they are loaded and written for the
    keys that are theirs.
    """
    if inspect.iscoroutinefunction(redis.invalidate):
        raise TypeError(
            "Django's ORM runs in threads: it needs a client of cacheupdater_client, not of its asyncio"
        )
    watched = Watch(keys, redis, settle=lambda result: result, write_through=write_through)
    Hooks(watched).listen()
    return watched
