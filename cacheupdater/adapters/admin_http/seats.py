"""Which connections of the admin address stay open when there are too many.

The server takes a seat for each connection and gives it back. Seats live as long as their server.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import Counter
from dataclasses import dataclass
from enum import IntEnum

CONNECTIONS_MAX = 32  # a scraper, probes and a few people
PER_ADDRESS_MAX = 8  # of these connections: probes, a scraper and a browser behind one address
AT_ONCE_MAX = 128  # during the SETTLE_S of new connections
SETTLE_S = 0.02  # time for a new connection to send its request; a probe needs a millisecond
SETTLE_TURNS = (
    3  # turns of the loop in which it reads what has arrived: to notice data, to read it, to wake the reader
)
NETWORK_BITS = 64  # of an IPv6 address: one host may choose any address in such a network
TOLD_EVERY_S = 600.0  # between two lines of the log about closed connections

_log = logging.getLogger(__name__)


class Stage(IntEnum):
    """How far a connection has come. Connections of the lowest stage are closed first."""

    SILENT = 0  # it has not sent a whole request
    SENDING = 1  # its answer waits for the client to read
    MAKING = 2  # its answer is being made, which has cost time and will be over soon


@dataclass(eq=False, slots=True)
class Seat:
    """The seat of one connection."""

    task: asyncio.Task[None]
    address: str
    stage: Stage = Stage.SILENT


class Seats:
    """Room for a number of connections, of which no address has more than its share.

    A new connection always gets a seat, and has `SETTLE_S` to send its request. Then, if there are too many connections, the
    address that holds the most loses some: the oldest that have sent no request, else the oldest that do not read their
    answer, else those that have waited the least for it. So no address can shut out an address that holds fewer.
    """

    def __init__(self) -> None:
        self._taken: dict[Seat, None] = {}  # the oldest first
        self._settling = False
        self._told = -TOLD_EVERY_S

    def take(self, seat: Seat) -> None:
        """Take a seat for a new connection. Another connection may lose its seat for it."""
        self._taken[seat] = None
        if len(self._taken) > AT_ONCE_MAX:
            self._part_with(self._greatest())
        if not self._settling and self._crowds():
            self._settling = True
            asyncio.get_running_loop().call_later(SETTLE_S, self._settle, SETTLE_TURNS)

    def give_back(self, seat: Seat) -> None:
        """The seat's connection is over."""
        self._taken.pop(seat, None)

    def _settle(self, turns: int) -> None:
        """Close connections until there is room. First the loop turns, to read requests that came while it was busy."""
        if turns:
            asyncio.get_running_loop().call_soon(self._settle, turns - 1)
            return
        self._settling = False
        while crowds := self._crowds():
            self._part_with(crowds)

    def _crowds(self) -> set[str]:
        """The addresses one of whose connections must be closed; empty if there is room."""
        held = Counter(each.address for each in self._taken)
        if above := {address for address, count in held.items() if count > PER_ADDRESS_MAX}:
            return above
        return self._greatest() if len(self._taken) > CONNECTIONS_MAX else set()

    def _greatest(self) -> set[str]:
        held = Counter(each.address for each in self._taken)
        return {address for address, count in held.items() if count == max(held.values())}

    def _part_with(self, crowds: set[str]) -> None:
        """Close one connection of these addresses."""
        crowd = [each for each in self._taken if each.address in crowds]
        stage = min(each.stage for each in crowd)
        leaving = [each for each in crowd if each.stage == stage][-1 if stage is Stage.MAKING else 0]
        self.give_back(leaving)
        leaving.task.cancel()
        now = asyncio.get_running_loop().time()
        if now - self._told >= TOLD_EVERY_S:
            self._told = now
            text = "admin: %s holds too many connections; some that send no request are closed (logged once in %g s)"
            _log.warning(text, leaving.address or "the socket", TOLD_EVERY_S)


def network_of(peer: object) -> str:
    """The address for which a connection counts: an IPv4 address, or the network in which an IPv6 host chooses its own."""
    if not isinstance(peer, tuple):
        return ""  # a unix socket: all its clients count as one
    try:
        address = ipaddress.ip_address(peer[0].partition("%")[0])
    except ValueError:
        return str(peer[0])
    bits = NETWORK_BITS if address.version == 6 else address.max_prefixlen
    return str(ipaddress.ip_network((address, bits), strict=False).network_address)
