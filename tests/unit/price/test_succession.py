"""What was learned of keys goes over to the namespaces of another configuration, and only to theirs."""

from __future__ import annotations

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace, Terms
from cacheupdater.price import Market, Price
from cacheupdater.price.succession import take_over
from cacheupdater_client.protocol.patterns import Pattern


class Desk:
    """One configuration: its patterns by name, market and policy."""

    def __init__(self, patterns):
        source = Source("main", Bucket(100.0, 100.0, now=0.0), concurrency=5)
        namespaces = [
            Namespace(name, Pattern.compile(pattern), source, terms=Terms())
            for name, pattern in patterns.items()
        ]
        self.keyspace = Keyspace([(each.pattern, each) for each in namespaces])
        self.market = Market(source, namespaces, random=lambda: 0.5, now=0.0)
        self.policy = Price(
            self.keyspace, namespaces, {source: self.market}, limits=Limits(learned=1000), now=0.0
        )

    def known(self):
        return {key for key in self.policy.table.keys if key is not None}

    def after(self, before):
        before.policy.leave()
        take_over(self.policy, before.policy, self.keyspace)
        self.policy.join(2.0)
        return self


def desk_with_reads():
    was = Desk({"page": "page:{id:int}", "item": "item:{id:int}"})
    was.policy.on_hints([b"page:1", b"item:1", b"item:2"], [1, 5, 7], 1.0)
    return was


def test_keys_keep_their_reads_where_the_pattern_stays_and_the_others_are_forgotten():
    was = desk_with_reads()
    row = was.policy.table.find([b"item:2"])[0]
    slow = was.policy.table.state[row].tolist()
    now = Desk({"new": "new:{id:int}", "item": "item:{id:int}", "page": "page:{id:str}"}).after(was)

    assert now.known() == {b"item:1", b"item:2"}
    assert now.market.tracked == 2
    assert was.market.tracked == 0
    kept = now.policy.table.state[now.policy.table.find([b"item:2"])[0]].tolist()
    changed = [at for at, (old, new) in enumerate(zip(slow, kept, strict=True)) if old != new]
    assert set(changed) <= {6, 7}  # the number of the namespace, and what was under way


def test_keys_that_a_longer_prefix_takes_are_not_those_of_the_namespace_any_more():
    was = Desk({"item": "item:{id}"})
    was.policy.on_hints([b"item:1", b"item:new:1"], [1, 1], 1.0)
    now = Desk({"item": "item:{id}", "new": "item:new:{id}"}).after(was)
    assert now.known() == {b"item:1"}
    assert now.market.tracked == 1
