"""Turns among many: the next item is the first of the flow that has been served least.

An inbox of the memory queue orders its packs by it, and the backlog of a namespace orders its due units. A flow is a peer. The
service of each flow is counted on one clock, which follows the flow being served. A peer that stands for many clients pays for
one of them, so it has as many shares. A flow that was away, or had to wait, has therefore saved up nothing. A new flow comes
right behind the turn of the flow being served. So the clock advances even if many flows come one after the other with one item
each. A single flow is a plain queue.
`leaves_room` is the other half: how much of a bounded store one flow may fill. `Room` keeps the accounts of such a store.
A `Fair` lives as long as the store that it orders. It knows neither packs nor keys. Its caller chooses the unit of service.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

PART = 8
"""One peer alone may fill eight ninths of a store. Two such peers get eight seventeenths each. A peer that has little always
finds room. These are the dynamic thresholds by which switches share their buffers (Choudhury and Hahne, 1998)."""

_LEFT_OVER = 64  # idle flows that are remembered, beyond one per waiting flow


class Clearable(Protocol):
    """The items of a flow: true while there are any."""

    def clear(self) -> None:
        """No item is left."""


Name = TypeVar("Name", bound="Hashable")
Items = TypeVar("Items", bound=Clearable)


def leaves_room(own: int, total: int, most: int, clients: int = 1) -> bool:
    """Whether a peer may add to its own part of the total: that part is at most `PART` times what is free, for each client."""
    return own <= PART * clients * max(0, most - total)


class Room:
    """How much of a bounded store each peer has filled, by number and by bytes."""

    def __init__(self, most: int, bytes_most: int) -> None:
        self._most = most
        self._bytes_most = bytes_most
        self.clear()

    def clear(self) -> None:
        """The store is empty."""
        self._total = self._bytes = 0
        self._own: dict[int, tuple[int, int]] = {}

    def takes(self, peer: int, number: int, size: int, *, clients: int = 1) -> bool:
        """Whether the peer, which stands for so many clients, may add this and still leaves room for others."""
        total, total_bytes = self._total + number, self._bytes + size
        if total > self._most or total_bytes > self._bytes_most:
            return False
        own, own_bytes = self._own.get(peer, (0, 0))
        return leaves_room(own, total, self._most, clients) and leaves_room(
            own_bytes, total_bytes, self._bytes_most, clients
        )

    def take(self, peer: int, number: int, size: int) -> None:
        """The peer has added this; or it is gone, if the amounts are negative."""
        own, own_bytes = self._own.get(peer, (0, 0))
        self._total += number
        self._bytes += size
        if own + number or own_bytes + size:
            self._own[peer] = own + number, own_bytes + size
        else:
            self._own.pop(peer, None)


class Flow(Generic[Name, Items]):
    """The items of one flow, in their order."""

    __slots__ = ("entered", "had", "items", "name", "start")

    def __init__(self, name: Name, items: Items) -> None:
        self.name = name
        self.items = items
        self.start = 0.0  # the service that it has had, on the clock, without that of a turn that goes on
        self.had = 0.0  # the service of that turn
        self.entered = False  # stands in the heap


class Fair(Generic[Name, Items]):
    """All flows."""

    __slots__ = ("_clock", "_end", "_flows", "_heap", "_items", "_only", "_order")

    def __init__(self, items: Callable[[], Items]) -> None:
        """`items` makes the empty container of a new flow."""
        self._items = items
        self._clock = 0.0
        self._end = 0.0  # of the turn that was served last: a new flow begins there
        # A flow that is alone needs no turns. All hints of a topic are one flow.
        self._only: tuple[int, Flow[Name, Items]] | None = None
        self._flows: dict[Name, Flow[Name, Items]] = {}
        self._heap: list[
            tuple[float, int, Flow[Name, Items]]
        ] = []  # starts may be later by now, never earlier
        self._order = count()

    def __bool__(self) -> bool:
        return self.first() is not None

    def __iter__(self) -> Iterator[Items]:
        """The items of each flow that has any."""
        if self._only:
            self._admit_others(*self._only)
        return (flow.items for _, _, flow in self._heap if flow.items)

    def of(self, name: Name) -> Items:
        """The flow's items. The caller puts one in at once."""
        if self._only:
            order, only = self._only
            if not only.items:
                self._forget()
                only.start = only.had = 0.0
            if only.name == name:
                return only.items
            self._admit_others(order, only)
        elif not self._flows:
            only = Flow(name, self._items())
            self._only = next(self._order), only
            return only.items
        flow = self._flows.get(name)
        if flow is None:
            flow = self._flows[name] = Flow(name, self._items())
        if not flow.entered:
            flow.entered = True
            flow.start = max(flow.start, self._end)
            heappush(self._heap, (flow.start, next(self._order), flow))
        return flow.items

    def _admit_others(self, order: int, flow: Flow[Name, Items]) -> None:
        """From now on this flow is one of many."""
        self._only = None
        if flow.items:
            flow.entered = True
            self._flows[flow.name] = flow
            self._heap.append((0.0, order, flow))

    def waiting(self, name: Name) -> Items:
        """The flow's items, which the caller may take out."""
        if self._only:
            self._admit_others(*self._only)
        flow = self._flows.get(name)
        return self._items() if flow is None else flow.items

    def first(self) -> Flow[Name, Items] | None:
        """The flow whose turn it is."""
        if self._only:
            only = self._only[1]
            return only if only.items else None
        heap = self._heap
        while heap:
            start, _, flow = heap[0]
            if not flow.items:
                heappop(heap)
                flow.entered = False
            elif start < max(flow.start, self._clock):  # it has been served, or passed over for a while
                flow.start = max(flow.start, self._clock)
                heapreplace(heap, (flow.start, next(self._order), flow))
            else:
                return flow
        self._forget()
        return None

    def first_where(self, ready: Callable[[Name], bool]) -> Flow[Name, Items] | None:
        """The flow whose turn it is among those that are ready. This costs a look at each flow."""
        if self._only:
            self._admit_others(*self._only)
        waiting = [flow for _, _, flow in self._heap if flow.items and ready(flow.name)]
        return min(waiting, key=lambda flow: flow.start, default=None)

    def serve(self, flow: Flow[Name, Items], amount: float, *, turn: float = 0.0) -> None:
        """The flow has had so much. Its turn goes on until the flow has had `turn`, or has no item left."""
        flow.start = self._clock = max(self._clock, flow.start)
        flow.had += amount
        self._end = self._clock + flow.had
        if flow.had < turn and flow.items:
            return
        flow.start, flow.had = self._end, 0.0
        if not self._only and len(self._flows) > 2 * len(self._heap) + _LEFT_OVER:
            self._flows = {
                name: each for name, each in self._flows.items() if each.entered or each.start > self._clock
            }

    def clear(self) -> None:
        """Nothing waits any more."""
        self._only = None
        for flow in self._flows.values():
            flow.items.clear()
        self._heap.clear()
        self._forget()

    def _forget(self) -> None:
        """No flow waits, so none has had more than another."""
        self._flows.clear()
        self._clock = self._end = 0.0
