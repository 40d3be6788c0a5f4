"""Turns among many: each flow's items in order, the next from the flow that has had least.

A queue's lane has the packs of its peers in one, a namespace's lane the due units of theirs. What a flow has had is counted
on the clock of those that are being served, so one that was away has saved up nothing, and one that comes with a little
is next. With a single flow this is a plain queue.
`leaves_room` is the other half: how much of a bounded store one of many may fill.
It lives as long as what it orders. It knows neither packs nor keys, and counts whatever its caller counts.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

PART = 8
"""One alone may fill eight ninths, two that press get eight seventeenths each, and whoever has little finds room always.
These are the dynamic thresholds by which switches share their buffers (Choudhury and Hahne, 1998)."""

_LEFT_OVER = 64  # flows that are away and remembered, beside as many as wait

Name = TypeVar("Name", bound="Hashable")
Item = TypeVar("Item")


def leaves_room(own: int, total: int, most: int) -> bool:
    """Whether one that has so much of the total may add to it: while that is no more than some times what is free."""
    return own <= PART * max(0, most - total)


class Flow(Generic[Name, Item]):
    """The items of one."""

    __slots__ = ("entered", "items", "name", "start")

    def __init__(self, name: Name) -> None:
        self.name = name
        self.items: deque[Item] = deque()
        self.start = 0.0  # what it has had, on the clock
        self.entered = False  # stands in the heap


class Fair(Generic[Name, Item]):
    """All of them."""

    __slots__ = ("_clock", "_flows", "_heap", "_order")

    def __init__(self) -> None:
        self._clock = 0.0
        self._flows: dict[Name, Flow[Name, Item]] = {}
        self._heap: list[
            tuple[float, int, Flow[Name, Item]]
        ] = []  # starts may be later by now, never earlier
        self._order = count()

    def __bool__(self) -> bool:
        return self.first() is not None

    def __iter__(self) -> Iterator[deque[Item]]:
        """The items of each that has any."""
        return (flow.items for _, _, flow in self._heap if flow.items)

    def of(self, name: Name) -> deque[Item]:
        """Its items, for the caller to put one in at once."""
        flow = self._flows.get(name)
        if flow is None:
            flow = self._flows[name] = Flow(name)
        if not flow.entered:
            flow.entered = True
            flow.start = max(flow.start, self._clock)
            heappush(self._heap, (flow.start, next(self._order), flow))
        return flow.items

    def waiting(self, name: Name) -> deque[Item]:
        """Its items, to take some out."""
        flow = self._flows.get(name)
        return deque() if flow is None else flow.items

    def first(self) -> Flow[Name, Item] | None:
        """Whose turn it is."""
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

    def first_where(self, ready: Callable[[Name], bool]) -> Flow[Name, Item] | None:
        """Whose turn it is among these; it costs a look at each."""
        waiting = [flow for _, _, flow in self._heap if flow.items and ready(flow.name)]
        return min(waiting, key=lambda flow: flow.start, default=None)

    def serve(self, flow: Flow[Name, Item], amount: float) -> None:
        """It has had so much, in its turn."""
        self._clock = max(self._clock, flow.start)
        flow.start = self._clock + amount
        if len(self._flows) > 2 * len(self._heap) + _LEFT_OVER:
            self._flows = {
                name: each for name, each in self._flows.items() if each.entered or each.start > self._clock
            }

    def clear(self) -> None:
        """Nothing waits any more."""
        for flow in self._flows.values():
            flow.items.clear()
        self._heap.clear()
        self._forget()

    def _forget(self) -> None:
        """Nobody waits, so nobody has had more than another."""
        self._flows.clear()
        self._clock = 0.0
