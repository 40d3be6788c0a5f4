"""Listens to the events of watched sessions, and gathers the keys of what they change until the commit.

One `Hooks` belongs to one `Watch` and lives as long as it. `flushing` learns the rows of flushes, `bulk` those of the ORM's
`insert()`, `update()` and `delete()`. This module follows transactions and savepoints. It tells the `Watch` when the
outermost transaction has been committed and its connection is back in the pool, so no connection waits for Redis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakSet

from sqlalchemy import Engine, event, literal, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, sessionmaker

from cacheupdater_client.sqlalchemy import bulk, flushing
from cacheupdater_client.sqlalchemy.pending import Flush, Pending
from cacheupdater_client.sqlalchemy.rows import Mapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.engine import Connection, ExceptionContext, Result
    from sqlalchemy.orm import Mapper, ORMExecuteState, SessionTransaction, UOWTransaction

    from cacheupdater_client.watching.announcing import Watch

ABORTED = "25P02"  # in_failed_sql_transaction, as PostgreSQL says it

Target: TypeAlias = Session | type[Session] | sessionmaker[Session]


class Hooks:
    """The listeners of one watch."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._mapped = [Mapped.of(rule) for rule in watch.rules]
        self._failed: WeakSet[Connection] = WeakSet()  # a statement on them has failed
        self._broken: WeakSet[Connection] = WeakSet()

    def listen(self, target: Target) -> None:
        """From now on, until the watch is stopped."""
        ours: dict[str, Callable[..., None]] = {
            "after_transaction_create": self._after_transaction_create,
            "after_begin": self._after_begin,
            "before_flush": self._before_flush,
            "after_flush": self._after_flush,
            "after_commit": self._after_commit,
            "after_transaction_end": self._after_transaction_end,
        }
        for name, listener in ours.items():
            self._listen(target, name, self._guarded(listener))
        self._listen(
            Engine, "handle_error", self._guarded(self._handle_error)
        )  # of any engine, also a later one
        # in these two the application's own statements run, whose errors are its own
        self._listen(target, "before_commit", self._before_commit)
        self._listen(target, "do_orm_execute", self._do_orm_execute)
        rows: dict[str, Callable[..., None]] = {
            "after_insert": self._after_insert,
            "after_update": self._after_update,
            "after_delete": self._after_delete,
        }
        for mapped in self._mapped:
            for name, listener in rows.items():
                self._listen(mapped.rule.model, name, self._guarded(listener), propagate=True)

    def _listen(
        self, target: object, name: str, listener: Callable[..., object], *, propagate: bool = False
    ) -> None:
        event.listen(target, name, listener, **({"propagate": True} if propagate else {}))
        self._watch.at_stop(lambda: event.remove(target, name, listener))

    def _guarded(self, listener: Callable[..., None]) -> Callable[..., None]:
        """A listener whose faults do not break the application's transaction."""

        def guarded(*args: object) -> None:
            with self._watch.guarded("a change, by a fault of cacheupdater_client"):
                listener(*args)

        return guarded

    def _pending(self, session: Session) -> Pending:
        pending = session.info.get(self)
        if pending is None:
            pending = session.info[self] = Pending()
        return pending

    # --- transactions -------------------------------------------------------------------------------------

    def _after_transaction_create(self, session: Session, transaction: SessionTransaction) -> None:
        if transaction.nested:
            self._pending(session).begin(transaction)

    def _after_begin(
        self, session: Session, _transaction: SessionTransaction, connection: Connection
    ) -> None:
        connections = self._pending(session).connections
        if connection not in connections:  # each savepoint begins on it again
            connections.append(connection)

    def _handle_error(self, context: ExceptionContext) -> None:
        """A connection was lost: if that was during a COMMIT, nobody knows whether the COMMIT took effect."""
        if context.connection is not None:
            (self._broken if context.is_disconnect else self._failed).add(context.connection)

    def _before_commit(self, session: Session) -> None:
        if session.in_nested_transaction():
            return
        pending = self._pending(session)
        pending.aborted = bool(len(pending.keys)) and any(map(self._is_aborted, pending.connections))
        pending.committing = True

    def _is_aborted(self, connection: Connection) -> bool:
        """Whether an error has ended the transaction, so that its COMMIT is a rollback, of which no driver tells.

        The application has gone on after the error. PostgreSQL refuses every statement of such a transaction.
        """
        if connection not in self._failed:
            return False
        self._failed.discard(connection)
        try:
            connection.execute(select(literal(1)))
        except DBAPIError as e:
            if getattr(e.orig, "sqlstate", getattr(e.orig, "pgcode", None)) != ABORTED:
                raise  # the transaction was whole before this error, so the application must know
            return True
        return False

    def _after_commit(self, session: Session) -> None:
        pending = self._pending(session)
        savepoint = session.get_nested_transaction()
        if savepoint is not None:
            pending.release(savepoint)
        else:
            pending.committed = True

    def _after_transaction_end(self, session: Session, transaction: SessionTransaction) -> None:
        pending: Pending | None = session.info.get(self)
        if pending is None:
            return
        if transaction.nested:
            pending.end(transaction)
        elif transaction.parent is None:
            del session.info[self]
            self._finish(pending)

    def _finish(self, pending: Pending) -> None:
        # nobody knows which part was committed; at worst this is one invalidation too many
        several = len(pending.connections) > 1
        in_doubt = pending.committing and (
            several or any(each in self._broken for each in pending.connections)
        )
        try:
            if in_doubt or (pending.committed and not pending.aborted):
                if any(each.in_transaction() for each in pending.connections if not each.closed):
                    self._watch.unseen("a commit of a session whose connection commits later")
                self._watch.announce(pending.keys)
        finally:
            pending.keys.close()

    # --- flushes ------------------------------------------------------------------------------------------

    def _before_flush(self, session: Session, _context: UOWTransaction, _objects: object) -> None:
        pending = self._pending(session)
        pending.flush = flushing.asked(session, self._mapped, self._watch)

    def _after_insert(self, _mapper: Mapper[object], _connection: Connection, obj: object) -> None:
        flush = self._flush_of(obj)
        if flush is not None:
            flush.saved.append(obj)

    def _after_update(self, _mapper: Mapper[object], _connection: Connection, obj: object) -> None:
        session = Session.object_session(obj)
        flush = self._flush_of(obj)
        if flush is not None and session is not None and session.is_modified(obj):
            flush.saved.append(obj)

    def _after_delete(self, _mapper: Mapper[object], _connection: Connection, obj: object) -> None:
        flush = self._flush_of(obj)
        if flush is not None:
            flush.deleted.append(obj)

    def _flush_of(self, obj: object) -> Flush | None:
        """The present flush, if this watch watches the object's session."""
        session = Session.object_session(obj)
        pending: Pending | None = session.info.get(self) if session is not None else None
        return pending.flush if pending is not None else None

    def _after_flush(self, session: Session, _context: UOWTransaction) -> None:
        pending = self._pending(session)
        flush, pending.flush = pending.flush, Flush()
        pending.keys.add(flushing.learned(session, self._mapped, flush, self._watch))

    # --- statements ---------------------------------------------------------------------------------------

    def _do_orm_execute(self, state: ORMExecuteState) -> Result[object] | None:
        if not (state.is_insert or state.is_update or state.is_delete):
            return None
        rules: list[Mapped] = []
        with self._watch.guarded("a statement, by a fault of cacheupdater_client"):
            if (table := bulk.of_core(state, self._mapped)) is not None:
                self._watch.unseen(f"a statement of Core on {table}")
            rules = bulk.watched(state, self._mapped)
        mapper = state.bind_mapper
        if not rules or mapper is None:
            return None
        statement = bulk.Statement(state, mapper, rules, self._watch)
        try:
            return statement.run()
        finally:  # also of a result that our own code could not read
            self._pending(state.session).keys.add(statement.names)
