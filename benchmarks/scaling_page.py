"""The page docs/explanation/scaling.md, written anew from build/scaling.json and build/bench.json.

    python benchmarks/scaling_page.py    # only the page again

Text that does not depend on the figures is written here. Code puts in every figure and computes a fleet's needs from the
figures, so the page never says more than was measured.
"""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import table
from many_namespaces import NAMESPACES, OFFER
from many_namespaces import ROWS as NAMESPACE_ROWS

from cacheupdater.adapters.queue_kafka.settings import SETTLE
from cacheupdater_client.target import DRAIN_S
from cacheupdater_client.transports.linger import ENOUGH, LINGER_S

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "scaling.md"
FIGURES = table.FILE.with_name("scaling.json")
NEEDED = ("P1-sync", "P2", "P4-zipf", "P4-uniform", "P6-d1", "P10-hint", "P10-unit")

READS = 10_000_000  # a second, of the fleet that is computed
CLIENT_READS = 10_000  # a second, of one application process
ROWS = 20_000  # a second, its budget
KEYS = 10_000_000  # that the applications read
SPLIT_GOAL = 1.15  # CPU per hint of two updaters / of one
KEYS_GOAL = 1.3  # of 10 M tracked keys / of 1 M
BUSY = 0.6  # of a core, so that there is room for a member that fails and for the next hour
CHOICES = (12, 24, 48, 96, 192, 384)  # partitions
REPLICAS = 3
RETENTION_H = 6  # what `topic create` sets
RATES = (1_000, 10_000, 100_000)  # reads a second of a client


class Missing(Exception):
    """A row that the page needs has not been measured."""


def write(page=PAGE, figures=FIGURES, bench=table.FILE):
    """Writes the page. Missing says what must be measured first."""
    found = json.loads(figures.read_text())
    rows = {each["name"]: each for each in json.loads(bench.read_text())}
    lacking = [name for name in NEEDED if name not in rows]
    if lacking:
        raise Missing(f"no {', '.join(lacking)} in {bench.name}")
    page.write_text(text(Model(found, rows)))
    return page


# --- what follows from the figures --------------------------------------------------------------------------


@dataclass(frozen=True)
class Traffic:
    """The traffic of clients with one rate of reads, into a topic of so many partitions."""

    every: float  # seconds between two sends
    share: float  # keys sent per read
    pack: float  # keys in each


class Model:
    """The measured figures, and the lines through them."""

    def __init__(self, found, rows):
        self.found, self.rows = found, rows
        self.setups = {
            (each["processes"], each["partitions"], each["pack"]): each for each in found["updaters"]
        }
        self.idle = {int(partitions): spent for partitions, spent in found["idle_ms"].items()}

    def ns(self, pack):
        """The ns of an updater's CPU per key."""
        return self.between("ns", pack)

    def stored(self, pack):
        """Bytes per key in Kafka."""
        return self.between("stored", pack)

    def between(self, what, pack, partitions=96):
        """Interpolates by logarithms between the measured sizes.

        Below the smallest, all of the cost counts as the pack's; above the largest, the cost is that of the largest.
        """
        some = sorted(
            (of_pack, each[what])
            for (processes, of, of_pack), each in self.setups.items()
            if processes == 1 and of == partitions
        )
        sizes, values = np.array(some).T
        inner = math.exp(np.interp(math.log(pack), np.log(sizes), np.log(values)))
        return inner * max(1.0, sizes[0] / pack)

    def idle_line(self):
        """The idle cost of (a process, a partition), in ms a second."""
        few, many = sorted(self.idle)
        slope = (self.idle[many] - self.idle[few]) / (many - few)
        return self.idle[few] - few * slope, slope

    def keys_in(self, reads):
        """The number of distinct keys in so many reads."""
        counted = {int(reads): keys for reads, keys in self.found["distinct"][str(KEYS)].items()}
        return float(
            np.exp(np.interp(math.log(reads), np.log(list(counted)), np.log(list(counted.values()))))
        )

    def traffic(self, rate, partitions):
        """A client sends ten times a second. If that is too little for a pack, touches wait for half a second at most."""
        every = DRAIN_S
        while self.keys_in(rate * every) < ENOUGH * partitions and every < LINGER_S - 1e-9:
            every += DRAIN_S
        keys = self.keys_in(rate * every)
        return Traffic(every, keys / (rate * every), max(1.0, keys / partitions))

    def said(self, row, pattern):
        """A figure from a row's text."""
        match = re.search(pattern, self.rows[row]["method"])
        if match is None:
            raise Missing(f"no {pattern!r} in what {row} says")
        return float(match[1])

    def cost(self, row, namespaces):
        """The microseconds that the row P10 of this name says for so many namespaces."""
        return self.said(row, rf"([\d.]+) us with {namespaces:,}\b")

    def hundredfold(self, row):
        """How much a hundred times as many namespaces cost."""
        few, *_, many = NAMESPACES
        return self.cost(row, many) / self.cost(row, few)

    @property
    def client_ns(self):
        """The ns per read (beside the GET, in the sender's thread)."""
        return self.rows["P1-sync"]["ratio"], self.said("P2", r"a hint with delivery \((\d+) ns\)")

    @property
    def refresh_us(self):
        return 1e3 / self.said("P6-d1", r"whole updater \((\d+) k keys/s by CPU")


@dataclass(frozen=True)
class Fleet:
    """The needs of READS reads a second."""

    partitions: int
    traffic: Traffic
    keys: float  # a second
    ns: float
    hint_cores: float
    refresh_cores: float
    processes: int


def fleet(model):
    """The fleet with the fewest partitions that give each updater one."""
    for partitions in CHOICES:
        traffic = model.traffic(CLIENT_READS, partitions)
        keys, ns = READS * traffic.share, model.ns(traffic.pack)
        hints, refreshes = keys * ns / 1e9, ROWS * model.refresh_us / 1e6
        found = Fleet(partitions, traffic, keys, ns, hints, refreshes, math.ceil((hints + refreshes) / BUSY))
        if found.processes <= partitions:
            break
    return found


# --- the page -----------------------------------------------------------------------------------------------


def text(model):
    parts = (_head, _hints, _keys, _namespaces, _partitions, _updaters, _fleet, _budget, _not)
    return "\n".join(part(model) for part in parts)


def _head(model):
    found, (_, partition) = model.found, model.idle_line()
    return f"""# How cost grows, and what a large fleet needs

<!-- written by `python benchmarks/run.py p2 p4 p10 scaling`; do not edit -->

Measured on {found["cores"]} shared cores: the broker (Apache Kafka) ran on one, all updaters ran on the other. The load average was {found["load"][0]} when the measurement began and {found["load"][1]} when it ended. On a busy machine all times below are too long, and ratios are wrong by less.
Times are CPU time of the updaters. Where a figure was computed and not measured, the page says so.

| in short | |
| --- | --- |
| hints | cost is proportional to keys sent; in packs of 10 a key costs {model.ns(10) / model.ns(500):.1f} times what it costs in packs of 500 |
| keys | ten times as many tracked keys make a hint {found["keys"]["ratio"]:.2f} times as expensive (goal: at most {KEYS_GOAL}), and take ten times the memory |
| namespaces | with a hundred times as many namespaces a hint costs {model.hundredfold("P10-hint"):.2f} times as much, and a unit {model.hundredfold("P10-unit"):.2f} times (goal: at most {model.rows["P10-unit"]["goal"]}) |
| partitions | each costs {partition:.2g} ms of CPU a second; more partitions also make packs smaller |
| updaters | two updaters need {model.setups[2, 12, 500]["to_one"]:.2f} times the CPU that one needs for the same work (goal: at most {SPLIT_GOAL}) |
| rows from the database, writes to Redis | do not grow with reads: the budget limits both |
"""


def _hints(model):
    zipf, uniform = model.rows["P4-zipf"], model.rows["P4-uniform"]
    return f"""## With hints

An updater fetches hints, decodes them and decides. With all its rules, it is {zipf["ratio"]} times as fast as aiokafka alone, if aiokafka delivers the same hints as one record per key (Zipf, goal {zipf["goal"]}). If hardly a key comes twice, the factor is {uniform["ratio"]} (goal {uniform["goal"]}). These are the rows P4 of `make bench`.

A hint's cost depends on the size of its pack. The table is for one updater, keys of 22 bytes that are drawn evenly, and a hold of 100 ms:

| partitions | keys in a pack | ns of updater CPU per key | bytes per key in Kafka (zstd) |
| --: | --: | --: | --: |
{_pack_table(model)}
Each pack, small or large, costs a record batch in Kafka, a decoding and an entry in the engine's books. Each turn of an engine has a cost too, which the hints of the turn share. In this measurement a million hints arrive per second of the engines' clock, and each engine has a turn every 10 ms: with 96 partitions few hints share a turn. The two costs were not measured separately.

The clients decide how large packs are. A client sends its hints every {DRAIN_S:g} s, each key once. If it has fewer than {ENOUGH} keys per partition, touches wait up to {LINGER_S:g} s for more. The next table is computed: for reads by Zipf's law (s = 1) over {KEYS:,} keys, with the costs of 96 partitions. Costs between the sizes above are interpolated by logarithms. Below 10 keys the cost is taken in proportion to the number of packs, which is too much:

| reads/s of a client | partitions | sends every | keys sent per read | keys in a pack | ns of updater CPU per read |
| --: | --: | --: | --: | --: | --: |
{_traffic_table(model)}
A few clients that read much make large packs; many small clients make small packs. One process with threads or asyncio, instead of ten processes, saves more here than any setting.
"""


def _pack_table(model):
    some = sorted(setup for setup in model.setups if setup[0] == 1)
    some.sort(key=lambda setup: (setup[1], -setup[2]))
    return "".join(
        f"| {partitions} | {pack} | {model.setups[1, partitions, pack]['ns']:.0f} | {model.setups[1, partitions, pack]['stored']:.1f} |\n"
        for _, partitions, pack in some
    )


def _traffic_table(model):
    lines = []
    for rate in RATES:
        for partitions in (12, 96):
            sent = model.traffic(rate, partitions)
            cost = sent.share * model.ns(sent.pack)
            lines.append(
                f"| {rate:,} | {partitions} | {sent.every:.1f} s | {sent.share:.2f} | {sent.pack:.0f} | {cost:.0f} |\n"
            )
    return "".join(lines)


def _keys(model):
    keys, price = model.found["keys"], model.found["price"]
    small, big, fits, capped = keys["small"], keys["big"], price["fits"], price["capped"]
    return f"""## With keys

A key takes memory while it is *tracked*: from its hint until its hold is over (policy `fixed`), or for as long as the policy `price` knows it. The table shows the engine and the decoding alone, with keys that are drawn evenly:

| policy | keys | ns per hint | bytes per key, key included | longest step of {_million(10_000)} hints |
| --- | --: | --: | --: | --: |
| fixed | {_million(small["tracked"])} tracked | {small["ns"]:.0f} | {small["bytes"]:.0f} | {small["longest_ms"]:.0f} ms |
| fixed | {_million(big["tracked"])} tracked | {big["ns"]:.0f} | {big["bytes"]:.0f} | {big["longest_ms"]:.0f} ms |
| price | {_million(fits["learned"])} learned of {_million(fits["universe"])} | {fits["ns"]:.0f} | {fits["bytes"]:.0f} | {fits["longest_ms"]:.0f} ms |
| price | {_million(capped["learned"])} learned of {_million(capped["universe"])} | {capped["ns"]:.0f} | {capped["bytes"]:.0f} | {capped["longest_ms"]:.0f} ms |

With `fixed`, a hint at the larger number of keys costs {keys["ratio"]:.2f} times what it costs at the smaller number (median of {keys["slices"]} slices, by turns). The instructions are the same, but the larger table fits into no cache.
During the longest step the updater does nothing else. Such a step may be a table that has grown too large and is copied, or Python's garbage collector; we have not looked which. Here one partition has all keys. A real updater has one table per partition, so each table is smaller.
`price` learns at most about a million keys per partition. The last row shows the cost of hints about more keys than that.
"""


def _million(count):
    return f"{count / 1e6:.2g} M" if count >= 1e6 else f"{count:,}"


def _namespaces(model):
    return f"""## With namespaces

The next table is for one engine whose namespaces are all offered {OFFER} times their quotas. All have the same rates: {OFFER * NAMESPACE_ROWS:,} hints and {NAMESPACE_ROWS:,} rows a second, one row in each unit. So only the number of namespaces differs. These are the rows P10 of `make bench`; loads and writes are not in it.

| namespaces | us per hint | us per unit |
| --: | --: | --: |
{_namespace_table(model)}
What limits a process is the number of units a second, and not the number of namespaces: a namespace that has nothing to load costs nothing. A namespace whose quota is one row a second makes one statement a second of one row, which is the dearest way to load rows. `make prove` runs a whole updater with 3,000 of these, and prints what it needs: [limits](limits.md) has the figures.
"""


def _namespace_table(model):
    return "".join(
        f"| {number:,} | {model.cost('P10-hint', number):.1f} | {model.cost('P10-unit', number):.1f} |\n"
        for number in NAMESPACES
    )


def _partitions(model):
    process, partition = model.idle_line()
    ratio = model.setups[1, 96, 500]["to_first"]
    small = model.setups[1, 96, 60]["to_first"]
    return f"""## With partitions

Each partition has an engine, an inbox and a few timers of its own.

| an updater that owns | CPU while nobody sends anything |
| --- | --: |
| 12 partitions | {model.idle[12]:.1f} ms a second |
| 96 partitions | {model.idle[96]:.1f} ms a second |

That is {process:.2g} ms a second for the process and {partition:.2g} for each partition.
Under load, a hint with 96 partitions costs {ratio:.2f} times what it costs with 12, if packs stay at 500 keys. It costs {small:.2f} times as much if the same hints come in packs of 60. Packs become an eighth as large if clients send as often as before.
So make as many partitions as updaters that you will ever want, or two or three times as many, so that they divide evenly. Do not make hundreds in reserve.
"""


def _updaters(model):
    return f"""## With updaters

Each key has one owner, and owners share only the [budget](state-and-fleet.md). The table shows the CPU per hint of all updaters together, compared with one updater of the same topic:

| updaters | 12 partitions, packs of 500 | 96 partitions, packs of 60 |
| --: | --: | --: |
{_updater_table(model)}
An updater by itself costs {model.found["base_rss"] / 2**20:.0f} MiB of memory before its first key, and the CPU of an idle updater (the table of the section before). With a `fleet` it also writes a claim to Redis every 5 s.
When an updater joins or leaves, all partitions of the group stand still until they are handed over; that may take at most {SETTLE:g} s.
"""


def _updater_table(model):
    lines = []
    for processes in (1, 2, 4):
        few, many = model.setups[processes, 12, 500], model.setups[processes, 96, 60]
        cells = [f"{each['ns']:.0f} ns, {each['to_one']:.2f} times" for each in (few, many)]
        lines.append(f"| {processes} | {' | '.join(cells)} |\n")
    return "".join(lines)


def _fleet(model):
    need = fleet(model)
    beside, sender = model.client_ns
    clients = READS // CLIENT_READS
    stored = model.stored(need.traffic.pack)
    volume = need.keys * stored
    packs = clients * need.partitions / need.traffic.every
    tracked = model.found["keys"]["big"]["bytes"]
    learned = model.found["price"]["fits"]["bytes"]
    base = model.found["base_rss"]
    _, idle = model.idle_line()
    memory = (KEYS * learned + need.processes * base) / 2**30
    return f"""## What {_million(READS)} reads a second would need

This section is computed from the figures above; such a fleet was never run. It has {clients:,} application processes of {CLIENT_READS:,} reads/s each, {_million(KEYS)} keys that are read by Zipf's law, and a budget of {ROWS:,} rows/s.

**Applications.** {beside:.0f} ns beside each GET (P1-sync) and {sender:.0f} ns in the sender's thread (P2):
`{READS:,} x ({beside:.0f} + {sender:.0f}) ns = {READS * (beside + sender) / 1e9:.1f} cores` over the whole fleet, {CLIENT_READS * (beside + sender) / 1e7:.2f} % of a core in each process. P2 was measured at 100,000 hints/s. A process with fewer hints pays more for each hint, and less for all of them.

**Hints.** With {need.partitions} partitions a client sends every {need.traffic.every:.1f} s, {need.traffic.share:.2f} keys per read in packs of {need.traffic.pack:.0f}:
`{READS:,} x {need.traffic.share:.2f} = {need.keys / 1e6:.1f} M keys/s`.

**Kafka.** {stored:.1f} bytes per key at that size: `{need.keys / 1e6:.1f} M/s x {stored:.1f} B = {volume / 1e6:.0f} MB/s` come in, and as much goes out to one group. With {REPLICAS} replicas `{volume * REPLICAS / 1e6:.0f} MB/s` go to disks and `{volume * (REPLICAS - 1) / 1e6:.0f} MB/s` go between brokers. Kept for {RETENTION_H} h, the hints take `{volume * REPLICAS * RETENTION_H * 3600 / 1e12:.1f} TB`.
`{clients:,} clients x {need.partitions} partitions / {need.traffic.every:.1f} s = {packs:,.0f}` packs a second, each in its own record batch. At this size brokers are busy with the number of batches, not with the bytes: {volume / need.partitions / 1e6:.1f} MB/s in a partition are little.

**Updater cores.** `{need.keys / 1e6:.1f} M keys/s x {need.ns:.0f} ns = {need.hint_cores:.1f} cores` for hints, `{ROWS:,} rows/s x {model.refresh_us:.0f} us = {need.refresh_cores:.1f}` for refreshes (P6-d1). The idle work, `{need.partitions} x {idle:.2g} ms`, is small compared with that. If each updater may use {BUSY:.0%} of a core: **{need.processes} updaters**, one core each, on {need.partitions} partitions.
These figures were measured with `fixed`. A hint costs more with `price`: {model.found["price"]["fits"]["ns"] / model.found["keys"]["small"]["ns"]:.1f} times as much in the table of keys. If all namespaces use `price`, multiply the cores for hints by that.

**Memory.** With `price`: `{_million(KEYS)} keys x {learned:.0f} B + {need.processes} x {base / 2**20:.0f} MiB = {memory:.1f} GiB` over all updaters, {memory / need.processes:.2f} GiB each. With `fixed`: {tracked:.0f} B for each key within its hold. In addition, each partition may have a few MiB of packs in work.

**Redis.** Redis has to serve {_million(READS)} reads a second with or without updaters. The updaters add at most {ROWS:,} fenced writes a second, which is {ROWS / READS:.2%} of the reads. They also add a removal for each announced change that is not loaded.

**Database.** At most {ROWS:,} rows a second, in statements of up to 200 rows. For so many rows, that is at least {ROWS // 200:,} statements a second.
"""


def _budget(_):
    return """## What the budget is, and is not

- It limits the **rows loaded per second** by all updaters of a `fleet` together, whatever the readers do. Ten times the readers, or a crawler that reads everything once, cost more hints but no more rows.
- It does not promise freshness. Rows, keys and changes decide how fresh values are ([price](price.md), [measured](freshness-results.md)): ten times the keys on the same budget are less fresh.
- It covers misses and changes too. If they ask for more rows than the budget has, they wait. After the age limit of the backlog (30 s) they are dropped: a dropped miss is counted, and a dropped change removes its value.
- It does not cover removals. An announced change that is not loaded costs Redis one script, and costs the database nothing.
- It does not cover the rows that the application itself loads after a miss.
- It counts a key as one row, also with `rows: many`. With `db_time`, it counts the database's time instead of rows.
"""


def _not(model):
    return f"""## What was not measured

- More than {max(processes for processes, _, _ in model.setups)} updaters, and more than one core for all of them. No two of them ever worked at the same instant. So the figures do not show the effect of what processes share (memory bandwidth, network).
- More than one broker. The one broker ran on the same machine, without replicas and TLS. This page does not compute the brokers' cores for so many small record batches, because we have no figure for them. Measure your brokers.
- Other queues than Kafka. [Which queue](queues.md) compares them.
- Hints and refreshes together. The cost of hints was measured with loads and writes that do no work. The cost of a refresh comes from P6, with PostgreSQL and Redis on the same machine.
- Keys longer than 22 bytes. Longer keys cost bytes in Kafka and memory, and little CPU.
- More than some seconds at a time. The page does not show how load changes during a day; retention, quotas and the {1 - BUSY:.0%} of each core that stay free are for that.

To repeat: `python benchmarks/run.py p2 p4 p10 scaling`. The figures are in `build/scaling.json` and `build/bench.json`.
"""


if __name__ == "__main__":
    try:
        print(write())
    except Missing as e:
        sys.exit(f"not written: {e}")
