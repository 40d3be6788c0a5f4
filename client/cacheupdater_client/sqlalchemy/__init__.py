"""`watch` for SQLAlchemy: whatever a session changes is invalidated after the session's commit, and forgotten by a rollback.

    from cacheupdater_client.sqlalchemy import watch
    watch(Session, {Product: "product:{id}", Price: ["price:{sku}", "product:{product_id}"]}, redis=r)

An application calls it once, at its start. It needs SQLAlchemy 2; the rest of the client does not. It sees flushes and the
ORM's `insert()`, `update()` and `delete()`. It does not see raw SQL, statements of Core, triggers and other programs.
`docs/how-to/never-forget.md` says more.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.util import await_only

from cacheupdater_client.sqlalchemy.hooks import Hooks, Target
from cacheupdater_client.watching.announcing import Client, Watch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from cacheupdater_client.watching.rules import Naming
    from cacheupdater_client.watching.writing import Writable

__all__ = ["Watch", "watch"]


def watch(
    target: object, keys: Mapping[type, Naming], *, redis: Client, write_through: Sequence[Writable] = ()
) -> Watch:
    """Invalidates the keys of changed rows after each commit of `target`'s sessions.

    `target` is a sessionmaker, a scoped_session, a class of sessions or one session, or what SQLAlchemy has of these for
    asyncio. `keys` says for each model which keys its rows have: patterns, or callables that get a row. `write_through`
    takes values that a `Cache` declares: after the invalidation they are loaded and written for the keys that are theirs.
    """
    watched = Watch(keys, redis, settle=_settle, write_through=write_through)
    Hooks(watched).listen(_target(target, is_async=inspect.iscoroutinefunction(redis.invalidate)))
    return watched


def _settle(result: object) -> object:
    """An asyncio client's answer. Works in whatever an AsyncSession runs, for that is where its events run."""
    return await_only(_as_awaitable(result)) if inspect.isawaitable(result) else result


async def _as_awaitable(result: Awaitable[object]) -> object:
    return await result


def _target(target: object, *, is_async: bool) -> Target:
    """What the events of `target`'s sessions are listened to on."""
    if isinstance(target, (scoped_session, async_scoped_session)):
        target = target.session_factory
    if isinstance(target, (async_sessionmaker, AsyncSession)):
        if not is_async:
            raise TypeError("a session of asyncio needs a client of cacheupdater_client.asyncio")
        return target.sync_session if isinstance(target, AsyncSession) else _of_maker(target)
    if isinstance(target, (sessionmaker, Session)) or (
        isinstance(target, type) and issubclass(target, Session)
    ):
        return target
    raise TypeError(
        f"watch takes a sessionmaker, an async_sessionmaker, a scoped session, a class of sessions or a session, not {target!r}"
    )


def _of_maker(maker: async_sessionmaker[AsyncSession]) -> Target:
    """The sync sessions inside the sessions of this maker alone, which get a class of their own."""
    base: object = maker.kw.get("sync_session_class", maker.class_.sync_session_class)
    if isinstance(base, sessionmaker):
        return base
    if not (isinstance(base, type) and issubclass(base, Session)):
        raise TypeError(
            f"sync_session_class is {base!r}, which is neither a class of sessions nor a sessionmaker"
        )
    own = type(f"Watched{base.__name__}", (base,), {})
    maker.configure(sync_session_class=own)
    return own
