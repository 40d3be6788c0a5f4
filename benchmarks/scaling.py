"""S: how the cost grows with updater processes, partitions, the size of packs, and tracked keys. Rows S-*, build/scaling.json.

    python benchmarks/scaling.py            # measures; writes the file and docs/explanation/scaling.md
    python benchmarks/scaling.py --quick    # tiny sizes, some seconds: does it run at all? Nothing is kept

Updaters are child processes (`scaling_worker`) on one core; the broker has the other. With Kafka they read whole topics as P4
does, alone or as a group. The configurations take turns, in rotated order, round after round. Topics hold evenly drawn hints:
few keys come twice in a pack, so cost per hint is cost per key. The engines with 1 M and 10 M tracked keys live in processes
of their own and play slices by turns: the same phase of the same traffic, only larger. The cost is CPU time, so processes
that share a core may wait for each other.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import rig
import scaling_page
import table
import uvloop
from kafka_intake import quiet
from scaling_topics import KEPT, Load, fill
from scaling_worker import LEARNED, STEP_HINTS
from table import row

from cacheupdater.local import kafka_topics
from cacheupdater.local.children import dying_with_us
from cacheupdater.local.kafka_server import KafkaServer

KINDS = ((12, 500), (12, 60), (12, 10), (96, 500), (96, 60), (96, 10))  # partitions, hints in a pack
SETUPS = (  # processes, partitions, hints in a pack
    *((processes, 12, 500) for processes in (1, 2, 4)),
    *((processes, 96, 60) for processes in (1, 2, 4)),
    *((1, partitions, pack) for partitions, pack in KINDS if (partitions, pack) not in {(12, 500), (96, 60)}),
)
PACKS = 30_000  # in a topic at most: each costs part of a request to write
DRAINS = (
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
)  # numbers of reads, for which the number of distinct keys is computed


@dataclass(frozen=True)
class Sizes:
    """The sizes of the measurements."""

    hints: int = 1_200_000  # in a topic
    universe: int = 1_000_000
    rounds: int = 5
    budget: float = 150.0  # seconds of rounds
    idle: float = 10.0
    smaller: int = 1_600_000  # keys of which a million are tracked
    times: int = 10
    slices: int = 10
    price: int = 1_000_000  # keys; `times` as many where the table is full


QUICK = Sizes(
    hints=60_000, universe=20_000, rounds=1, idle=1.0, smaller=40_000, times=3, slices=2, price=20_000
)


class Worker:
    """A child process, and the messages to and from it."""

    def __init__(self):
        command = dying_with_us([sys.executable, str(Path(__file__).with_name("scaling_worker.py"))])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.base = self.hear()["rss"]

    def tell(self, **said):
        print(json.dumps(said), file=self.process.stdin, flush=True)

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a worker has ended; it has said why above")
        return json.loads(line)

    def ask(self, **said):
        self.tell(**said)
        return self.hear()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# --- processes, partitions and packs ------------------------------------------------------------------------


def name_of(partitions, pack):
    return f"hints-{partitions}-{pack}"


def load_of(sizes, partitions, pack):
    packs = max(1, round(min(sizes.hints, PACKS * pack) / partitions / pack))
    return Load("uniform", partitions, pack, packs, sizes.universe)


def topics(server, sizes):
    """Fills the topics. Returns the bytes per hint that the broker stores, by topic."""
    stored = {}
    for partitions, pack in KINDS:
        load, topic = load_of(sizes, partitions, pack), name_of(partitions, pack)
        kafka_topics.done(kafka_topics.create(server.admin, topic, partitions=partitions, config=KEPT))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            _, size = runner.run(fill(server.bootstrap, load, topic))
        stored[topic] = size / load.hints
    return stored


def consumed(workers, server, sizes, setup):
    """The ns of CPU per hint of all processes together, for one pass over a topic."""
    processes, partitions, pack = setup
    load, crew, group = load_of(sizes, partitions, pack), workers[:processes], uuid.uuid4().hex
    for each in crew:
        each.tell(
            do="consume",
            bootstrap=server.bootstrap,
            topic=name_of(partitions, pack),
            load=asdict(load),
            group=group,
            owned=partitions // processes,
        )
    together(crew)
    spent = sum(said["cpu"] for said in together(crew))
    for each in crew:
        each.hear()
    return spent / load.hints * 1e9


def together(crew):
    """Waits for a message of every worker, then lets all continue. Returns the messages."""
    said = [each.hear() for each in crew]
    for each in crew:
        each.tell(do="go on")
    return said


def rounds_of(workers, server, sizes):
    """The cost in each round, by setup. On a busy machine there are fewer rounds."""
    costs = {setup: [] for setup in SETUPS}
    began = time.perf_counter()
    for number in range(sizes.rounds):
        shift = number * len(SETUPS) // sizes.rounds
        for setup in SETUPS[shift:] + SETUPS[:shift]:
            costs[setup].append(consumed(workers, server, sizes, setup))
        spent = time.perf_counter() - began
        if spent + spent / (number + 1) > sizes.budget:
            break
    return costs


def idling(worker, server, sizes):
    """Milliseconds of CPU a second, by number of partitions."""
    spent = {}
    for partitions in (12, 96):
        topic = f"idle-{partitions}"
        kafka_topics.done(kafka_topics.create(server.admin, topic, partitions=partitions))
        told = worker.ask(
            do="idle",
            bootstrap=server.bootstrap,
            topic=topic,
            partitions=partitions,
            seconds=sizes.idle,
        )
        spent[partitions] = told["cpu_per_s"] * 1e3
    return spent


def with_kafka(sizes):
    quiet()
    rig.pin(0)
    with KafkaServer() as server:
        rig.pin(-1)
        stored = topics(server, sizes)
        workers = [Worker() for _ in range(max(processes for processes, _, _ in SETUPS))]
        try:
            costs = rounds_of(workers, server, sizes)
            idle = idling(workers[0], server, sizes)
        finally:
            for each in workers:
                each.close()
    base = (SETUPS[0], costs[SETUPS[0]])
    return {
        "updaters": [
            {
                "processes": processes,
                "partitions": partitions,
                "pack": pack,
                "ns": statistics.median(each),
                "to_first": statistics.median(a / b for a, b in zip(each, base[1], strict=True)),
                "to_one": statistics.median(
                    a / b for a, b in zip(each, costs[1, partitions, pack], strict=True)
                ),
                "stored": stored[name_of(partitions, pack)],
            }
            for (processes, partitions, pack), each in costs.items()
        ],
        "rounds": len(base[1]),
        "idle_ms": idle,
        "base_rss": workers[0].base,
    }


# --- tracked keys -------------------------------------------------------------------------------------------


def tracked(sizes):
    """1 M and 10 M tracked keys, slice by slice; and the policy price."""
    small, big = Worker(), Worker()
    steps = round(
        sizes.smaller / STEP_HINTS
    )  # until each key has been drawn once on average: a hold's length
    crew = ((small, 1), (big, sizes.times))
    try:
        for worker, times in crew:
            worker.tell(do="track", universe=sizes.smaller * times, warm=steps * times)
        memory = [worker.hear() for worker, _ in crew]
        slices = [
            slice_of(crew, number, max(1, steps // (2 * sizes.slices))) for number in range(sizes.slices)
        ]
    finally:
        small.close()
        big.close()
    ratio = statistics.median(large["ns"] / little["ns"] for little, large in slices)
    return {
        "ratio": ratio,
        "small": keys_said(memory[0], [each[0] for each in slices]),
        "big": keys_said(memory[1], [each[1] for each in slices]),
        "slices": len(slices),
    }


def slice_of(crew, number, steps):
    """Plays a slice. The larger engine plays longer: its hold lasts longer too, so both stay in the same phase."""
    said = {worker: None for worker, _ in crew}
    for worker, times in crew[:: 1 if number % 2 else -1]:
        said[worker] = worker.ask(do="play", steps=steps * times)
    return list(said.values())


def keys_said(memory, slices):
    return {
        "tracked": memory["tracked"],
        "bytes": memory["grown"] / memory["tracked"],
        "ns": statistics.median(each["ns"] for each in slices),
        "longest_ms": slices[-1]["longest_ms"],
    }


def priced(sizes):
    """The policy's cost if all keys fit into its table, and if a tenth does."""
    warm = 3 * round(sizes.price / STEP_HINTS)
    most = min(LEARNED, sizes.price)
    cases = {"fits": (sizes.price, most + most // 10), "capped": (sizes.price * sizes.times, most)}
    found = {}
    for name, (universe, learned) in cases.items():
        worker = Worker()
        try:
            memory = worker.ask(do="track", universe=universe, warm=warm, learned=learned)
            told = [worker.ask(do="play", steps=max(1, warm // 10)) for _ in range(sizes.slices)]
        finally:
            worker.close()
        found[name] = {
            "universe": universe,
            "learned": memory["learned"],
            "bytes": memory["grown"] / memory["learned"],
            "ns": statistics.median(each["ns"] for each in told),
            "longest_ms": told[-1]["longest_ms"],
        }
    return found


# --- clients ------------------------------------------------------------------------------------------------


def distinct(universe, rng):
    """The number of distinct keys in so many reads, if some keys are read more than others (Zipf, s = 1)."""
    ends = np.cumsum(1.0 / np.arange(1, universe + 1))
    return {
        reads: float(
            np.mean(
                [len(set(np.searchsorted(ends, rng.random(reads) * ends[-1]).tolist())) for _ in range(5)]
            )
        )
        for reads in DRAINS
    }


# --- rows ---------------------------------------------------------------------------------------------------


def measure(sizes):
    loads = [os.getloadavg()[0]]
    found = with_kafka(sizes) | {"keys": tracked(sizes), "price": priced(sizes)}
    loads.append(os.getloadavg()[0])
    rng = np.random.default_rng(7)
    found["distinct"] = {str(keys): distinct(keys, rng) for keys in (sizes.universe, 10 * sizes.universe)}
    found["cores"] = os.cpu_count()
    found["load"] = [round(each, 1) for each in loads]
    return json.loads(json.dumps(found))  # as the page reads it: names are strings


def rows_of(found):
    setups = {(each["processes"], each["partitions"], each["pack"]): each for each in found["updaters"]}
    how = f"median of {found['rounds']} interleaved passes, CPU time, all updaters on one core, evenly drawn hints"
    one = setups[1, 12, 500]
    rows = [
        row(
            "S-two-processes",
            setups[2, 12, 500]["to_one"],
            scaling_page.SPLIT_GOAL,
            method=f"CPU per hint of two updaters with 6 partitions each / one with 12 ({one['ns']:.0f} ns); {how}",
        )
    ]
    for processes, partitions, pack in SETUPS:
        each = setups[processes, partitions, pack]
        if (processes, partitions, pack) in {(1, 12, 500), (2, 12, 500)}:
            continue
        name = f"S-{processes}x{partitions}-packs-of-{pack}"
        method = f"CPU per hint of {processes} updaters, {partitions} partitions, packs of {pack} ({each['ns']:.0f} ns) / one, 12, 500; {how}"
        rows.append(row(name, each["to_first"], None, method=method))
    keys, price = found["keys"], found["price"]
    small, big = keys["small"], keys["big"]
    return [
        *rows,
        row(
            "S-10M-keys",
            keys["ratio"],
            scaling_page.KEYS_GOAL,
            method=f"CPU per hint at {big['tracked']:,} tracked keys ({big['ns']:.0f} ns) / at {small['tracked']:,} ({small['ns']:.0f} ns), "
            f"engine and decoding, policy fixed; median of {keys['slices']} slices by turns, a process each",
        ),
        row(
            "S-price-capped",
            price["capped"]["ns"] / price["fits"]["ns"],
            None,
            method=f"the same under price, {price['capped']['universe']:,} keys of which it learns {price['capped']['learned']:,} "
            f"({price['capped']['ns']:.0f} ns) / {price['fits']['learned']:,} keys, all learned ({price['fits']['ns']:.0f} ns)",
        ),
    ]


def run(sizes=None):
    """The rows for `build/bench.json`. Also writes the figures and the page."""
    found = measure(sizes or Sizes())
    rows = rows_of(found)
    if sizes is None:
        scaling_page.FIGURES.parent.mkdir(exist_ok=True)
        scaling_page.FIGURES.write_text(json.dumps(found, indent=1) + "\n")
        table.keep(rows)
        write_page()
    return rows


def write_page():
    try:
        print(f"page: {scaling_page.write()}")
    except scaling_page.Missing as e:
        print(f"no page: {e}")


if __name__ == "__main__":
    table.show(run(QUICK if "--quick" in sys.argv else None))
