"""From messages to hints: the only place where packs are decoded.

Called by the partition with what it fetched. A message that is no pack is counted with its reason and skipped:
it is never an error, for anybody may write to a queue, and its offset must be passed all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.hints import Hints, Kind, believable
from cacheupdater_client.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from cacheupdater.core.engine import Engine
    from cacheupdater.ports import Message, Observer

    Hear: TypeAlias = Callable[[Kind, Sequence[bytes], Sequence[int]], None]
    Late: TypeAlias = Callable[[Kind, wire.Pack], bool]

_KINDS = (Kind.TOUCH, Kind.MISS, Kind.CHANGE)


def take_in(
    engine: Engine,
    messages: Sequence[Message],
    now: float,
    *,
    observer: Observer,
    hear: Hear | None = None,
    late: Late | None = None,
) -> None:
    """Tell the engine of these messages, in their order. `late` says which packs are too old for it, `hear` is told of
    all others."""
    engine.on_hints(_decoded(engine, messages, now, observer=observer, hear=hear, late=late), now)


def _decoded(
    engine: Engine,
    messages: Sequence[Message],
    now: float,
    *,
    observer: Observer,
    hear: Hear | None,
    late: Late | None,
) -> Iterator[Hints]:
    """One at a time: keys that were just decoded are still in the processor's cache when the engine looks them up."""
    for message in messages:
        try:
            pack = wire.decode_pack(message.payload)
        except wire.Malformed as e:
            observer.count("intake_rejected", 1, reason=e.reason)
            engine.skip(message.offset, now)
        else:
            kind = _KINDS[pack.kind]
            if late is not None and late(kind, pack):
                engine.skip(message.offset, now)
                continue
            counts = believable(pack.counts)
            if hear is not None:
                hear(kind, pack.keys, counts)
            yield Hints(message.offset, kind, pack.keys, counts, message.peer)
