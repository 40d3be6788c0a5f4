"""After a commit: the changed keys are invalidated in Redis, or written through. The application never gets our errors.

A `Watch` is made by each call of `watch` and lives until its `stop`. The hooks give it the keys of a transaction that has
been committed. All keys are invalidated first; then the values of some are loaded and written, if `watch` was told so. If
Redis or a loader fails, the rows have changed all the same, so nothing is raised: the failure is counted, the first of its
kind is logged, and a hint tells the updater of each change. A cancelled task and a signal's exception do pass.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypedDict

from redis.exceptions import ResponseError

from cacheupdater_client import calls
from cacheupdater_client.observe import Emitting
from cacheupdater_client.watching.rules import rule_of
from cacheupdater_client.watching.writing import WRITE_S, Due, checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cacheupdater_client.buffer import KeyEncoder
    from cacheupdater_client.protocol.patterns import Captures
    from cacheupdater_client.watching.keys import Keys
    from cacheupdater_client.watching.rules import Naming, Row, Rule
    from cacheupdater_client.watching.writing import Writable

TOLD_MAX = (
    100  # different log lines of one watch; there is one for each kind of trouble, some with the model's name
)

log = logging.getLogger("cacheupdater_client")


Count: TypeAlias = Literal["transactions", "invalidated", "written", "unwritten", "failed", "unseen", "lost"]


class Client(Protocol):
    """A `Redis` or `RedisCluster` of ours, sync or asyncio."""

    def invalidate(self, *keys: bytes) -> object: ...
    def get_encoder(self) -> KeyEncoder: ...


class Counted(TypedDict):
    """What has happened since `watch` was called."""

    transactions: int  # commits that changed watched rows
    invalidated: int  # keys
    written: int  # of these: keys whose fresh value was written through
    unwritten: int  # of these: keys whose fresh value should have been written through
    failed: int  # keys that Redis did not confirm; each has left a hint
    unseen: int  # statements and rows whose keys could not be learned
    lost: int  # keys beyond the cap of one transaction


class TransactionLost(Exception):
    """The database refused a savepoint of ours, so the application's transaction is aborted. The application must know:

    PostgreSQL answers the COMMIT of such a transaction with a rollback, and drivers raise nothing.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Watch:
    """What `watch` returns: the counts, and the way to end it."""

    def __init__(
        self,
        rules: Mapping[type, Naming],
        redis: Client,
        *,
        settle: Callable[[object], object],
        write_through: Sequence[Writable] = (),
    ) -> None:
        """`settle` makes the result of a call of `redis` or of a value: it awaits where the framework can."""
        if not isinstance(redis, Emitting):
            raise TypeError(
                f"redis takes a client of cacheupdater_client, not {type(redis).__name__}; use wrap() for an existing one"
            )
        if not rules:
            raise ValueError('name at least one model, as in {Product: "product:{id}"}')
        self._redis: Client = redis
        self._encoder = redis.get_encoder()
        self._settle = settle
        self._rules = tuple(rule_of(model, naming) for model, naming in rules.items())
        waits = inspect.iscoroutinefunction(redis.invalidate)
        self._writable = checked(write_through, self._rules, waits=waits)
        self._counts = Counted(
            transactions=0, invalidated=0, written=0, unwritten=0, failed=0, unseen=0, lost=0
        )
        self._lock = threading.Lock()
        self._told: set[str] = set()
        self._undo: list[Callable[[], object]] = []

    @property
    def rules(self) -> tuple[Rule, ...]:
        """One for each model."""
        return self._rules

    def counts(self) -> Counted:
        """How much was invalidated, and what was not."""
        with self._lock:
            return self._counts.copy()

    def at_stop(self, undo: Callable[[], object]) -> None:
        """`stop` calls this."""
        self._undo.append(undo)

    def stop(self) -> None:
        """Watches no longer. Transactions under way are not announced."""
        while self._undo:
            self._undo.pop()()

    # --- while the transaction runs -----------------------------------------------------------------------

    def keys_of(self, rule: Rule, row: Row) -> list[bytes]:
        """The keys of a row as the client sends them. A callable that fails does not fail the transaction."""
        names: list[bytes] = []
        try:
            for key in rule.keys(row):
                names += calls.names_of(self._encoder, [key])
        except Exception as e:  # noqa: BLE001  the application's own callable, and redis-py's refusal of its keys
            self.unseen(f"a row of {rule.model.__name__}, whose keys cannot be named: {e!r}")
        return names

    def unseen(self, what: str, count: int = 1) -> None:
        """A change whose keys could not be learned."""
        self._count("unseen", count)
        self._tell(what.partition(":")[0], f"not invalidated: {what}; call invalidate() yourself")

    @contextlib.contextmanager
    def guarded(self, what: str) -> Iterator[None]:
        """Around our own work inside the application's transaction: a fault of ours is counted, and does not break it."""
        try:
            yield
        except TransactionLost as e:
            raise e.error from None
        except Exception as e:  # noqa: BLE001  the guard
            self.unseen(f"{what}: {e!r}")

    # --- after the commit ---------------------------------------------------------------------------------

    def announce(self, keys: Keys) -> None:
        """The transaction was committed: these keys have changed."""
        if not len(keys) and not keys.lost:
            return
        self._count("transactions")
        chunks, due = keys.chunks(), Due(self._writable)
        try:
            self._invalidate_all(chunks, due)
            self._write_all(due)
        except BaseException:  # a cancelled task: the updater learns the rest
            for chunk in chunks:
                self._hint(chunk)
            raise
        finally:
            if keys.lost:
                self._count("lost", keys.lost)
                self._tell("lost", f"not invalidated: {keys.lost} keys of one transaction, beyond its cap")

    def _invalidate_all(self, chunks: Iterable[Sequence[bytes]], due: Due) -> None:
        """From the first call without an answer on, keys are only hinted.

        Such a call has taken the client's whole patience, and the application waits.
        """
        answers = True
        for names in chunks:
            if answers:
                answers = self._invalidate(names, due)
            else:
                self._count("failed", len(names))
                self._hint(names)

    def _invalidate(self, names: Sequence[bytes], due: Due) -> bool:
        """Whether Redis has answered, be it with a refusal."""
        try:
            self._settle(self._redis.invalidate(*names))
        except Exception as e:  # noqa: BLE001  the rows are committed: raising would say they are not
            self._failed(names, e)
            return isinstance(e, ResponseError)
        except BaseException:  # a cancelled task: the changes are known to the updater all the same
            self._hint(names)
            raise
        self._count("invalidated", len(names))
        due.add(names)
        return True

    def _write_all(self, due: Due) -> None:
        """Values that cannot be written stay removed."""
        ends, failing = monotonic() + WRITE_S, set[str]()
        self._count("unwritten", due.beyond)
        for value, items in due.units():
            name = value.declared.name
            written = 0
            if name not in failing and monotonic() < ends:
                try:
                    written = self._write(value, items)
                except Exception as e:  # noqa: BLE001  the loader's error, or one of Redis: the keys are invalid already
                    failing.add(name)
                    self._tell(f"write {name}", f"no fresh value of {name}, invalidated only: {e!r}")
            self._count("written", written)
            self._count("unwritten", len(items) - written)

    def _write(self, value: Writable, items: Sequence[Captures]) -> int:
        written = self._settle(value.write_through(items))
        return written if isinstance(written, int) else 0

    def _failed(self, names: Sequence[bytes], error: Exception) -> None:
        self._count("failed", len(names))
        self._hint(names)
        self._tell(
            "redis",
            f"committed, but Redis did not confirm that {len(names)} changed keys are invalid; the updater is told: {error!r}",
        )

    def _hint(self, names: Sequence[bytes]) -> None:
        """A change for each key, also where the call of Redis never began. A second one merges with the first."""
        if isinstance(self._redis, Emitting):
            self._redis._changed(names)  # noqa: SLF001  a client of ours has no public way to leave a hint alone

    def _count(self, what: Count, more: int = 1) -> None:
        with self._lock:
            self._counts[what] += more

    def _tell(self, kind: str, text: str) -> None:
        """The first of each kind is logged; `counts` says how many came after it."""
        if kind not in self._told and len(self._told) < TOLD_MAX:
            self._told.add(kind)
            with contextlib.suppress(Exception):  # the application's own handlers and filters run here
                log.warning("%.500s (logged once)", text)
