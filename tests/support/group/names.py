"""Which partitions a member of a depot owns, by what the depot says at that moment.

A member has a new name after each start, and no log has the name. So a story starts its members one after another, and `came`
takes the name that is new. Logs would not do: a partition that was released or claimed a moment ago is not in them yet.
"""

from __future__ import annotations

from live.updater_process import eventually

EVERY_S = 0.2  # between two looks: each is a connection


class Names:
    """The names of the members of one group. Nobody else joins its depot."""

    def __init__(self, queue):
        self._queue = queue
        self._seen = set()
        self._names = {}

    def came(self, member):
        """This member alone has started since the last call."""
        new = eventually(lambda: self._queue.members() - self._seen, every=EVERY_S)
        [self._names[member]] = new
        self._seen |= new

    def owned_by(self, member):
        """The partitions of its last start, each with its name."""
        name = self._names[member]
        return {partition: owner for partition, owner in self._queue.owners().items() if owner == name}

    def have_heirs(self, owned):
        """Whether each of these partitions has an owner now, and another one."""
        owners = self._queue.owners()
        return all(owners.get(partition) not in {None, owner} for partition, owner in owned.items())
