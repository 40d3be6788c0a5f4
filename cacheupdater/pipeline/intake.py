"""From messages to hints: the only place where packs are decoded.

The partition calls `take_in` with the messages that it has fetched. A message that is no pack is counted with its reason and
skipped. Such a message is never an error, for anybody may write to a queue, and the cursor must still pass its offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.hints import KIND_OF, READS_MAX, Hints, Kind, believable
from cacheupdater_client.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from cacheupdater.core.engine import Engine
    from cacheupdater.ports import Message, Observer

    Hear: TypeAlias = Callable[[Hints], None]
    Late: TypeAlias = Callable[[Kind, wire.Pack], bool]


def take_in(
    engine: Engine,
    messages: Iterable[Message],
    now: float,
    *,
    observer: Observer,
    hear: Hear | None = None,
    late: Late | None = None,
) -> None:
    """Hand these messages to the engine, in their order. The engine has taken in each of them before the next one is asked for.

    `late` says whether a pack comes too late. Late reads are left out, and late changes are taken in. `hear` is called for each pack
    that is not late: a late one says nothing of what is in Redis now.
    """
    engine.on_hints(_decoded(engine, messages, now, observer=observer, hear=hear, late=late), now)


def _decoded(
    engine: Engine,
    messages: Iterable[Message],
    now: float,
    *,
    observer: Observer,
    hear: Hear | None,
    late: Late | None,
) -> Iterator[Hints]:
    """The hints, one pack at a time: freshly decoded keys are still in the processor's cache when the engine looks them up."""
    for message in messages:
        if engine.cursor.passes(message.offset, message.place):
            continue
        try:
            pack = wire.decode_pack(message.payload)
        except wire.Malformed as e:
            observer.count("intake_rejected", 1, reason=e.reason)
            engine.skip(message.offset, now)
        else:
            kind = KIND_OF[pack.kind]
            is_late = late is not None and late(kind, pack)
            if is_late and kind is not Kind.CHANGE:
                engine.skip(message.offset, now)
                continue
            hints = _hints(message, kind, pack)
            if hear is not None and not is_late:
                hear(hints)
            yield hints


def _hints(message: Message, kind: Kind, pack: wire.Pack) -> Hints:
    counts: Sequence[int] = pack.counts
    reads = sum(counts)
    if reads > READS_MAX * message.clients:
        counts, reads = believable(counts, message.clients), 0
    return Hints(
        message.offset,
        kind,
        pack.keys,
        counts,
        message.peer,
        tokens=pack.tokens,
        clients=message.clients,
        is_set=pack.kind == wire.SET,
        counted=reads,
    )
