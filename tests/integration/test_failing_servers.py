"""Redis, the hints' target and the loader are absent or fail, in every combination: a read does what redis-py does, plus the loader.

Each target has one application (`reading/failing.py`). It asks each Redis in each way, with redis-py beside ours, then reads
200,000 keys (two million in `make prove`), begins refreshes that never end, and ends by itself.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

import pytest
from hints.server import HintServer
from reading import failing
from servers.failing import hanging, refusing, resetting
from suite.pace import PATIENCE_S

EXIT_S = 10.0  # the client waits one second in all; what hangs, hangs for ever
HINTS_MAX = 200_000  # that wait: 100,000 places of the buffer, and as many of the outbox
MEMORY_MB = 64  # for as many hints; they took 29
TARGETS = {
    "none": lambda _, __: contextlib.nullcontext("none"),
    "no socket": lambda folder, _: contextlib.nullcontext(f"unix://{folder}/nobody.sock"),
    "socket that hangs": lambda folder, _: hanging(folder / "hangs.sock"),
    "updater": lambda folder, _: HintServer(folder / "updater.sock", prefixes=[b""]),
    "kafka refused": lambda _, ports: contextlib.nullcontext(f"kafka://127.0.0.1:{ports['refused']}/hints"),
    "kafka that hangs": lambda _, ports: contextlib.nullcontext(
        f"kafka://127.0.0.1:{ports['hanging']}/hints"
    ),
}
ALWAYS = {"updater", "socket that hangs", "kafka that hangs"}  # in each run; the others in `make prove`
STOCK = {
    ("up", "there"): ["value", failing.ROWS["there"]],
    ("up", "absent"): ["value", None],
    "refused": "ConnectionError",
    "hanging": "TimeoutError",
    "resetting": "ConnectionError",
}  # what redis-py's `get` gets: without these, a Redis that does not fail as it should would pass
LOADED = {
    ("sync", "returns"): ["value", failing.ROWS["absent"]],
    ("sync", "raises"): ["error", "Refused"],
    ("sync", "hangs"): ["value", failing.ROWS["absent"]],  # nobody can interrupt it; its own caller waits
    ("asyncio", "returns"): ["value", failing.ROWS["absent"]],
    ("asyncio", "raises"): ["error", "Refused"],
    ("asyncio", "hangs"): ["error", "LoadTimeout"],
}  # what a declared value's reader gets where Redis answers that it has nothing: docs/how-to/read-through.md


@pytest.fixture
def servers(redis_url):
    """The URLs of Redis by how it fails, and the ports behind which nobody serves."""
    with refusing() as refused, hanging() as hangs, resetting() as resets:
        ports = {"refused": refused, "hanging": hangs, "resetting": resets}
        patience = f"?socket_timeout={PATIENCE_S}"
        urls = {name: f"redis://127.0.0.1:{port}/0{patience}" for name, port in ports.items()}
        urls["hanging"] = f"redis://127.0.0.1:{hangs}/0?socket_timeout={failing.SLACK_S}"
        yield {"up": redis_url + patience} | urls, ports


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "target", [pytest.param(each, marks=() if each in ALWAYS else pytest.mark.prove) for each in TARGETS]
)
def test_reads_do_what_redis_py_does_and_the_process_ends(servers, target, amount, tmp_path):
    urls, ports = servers
    reads = amount(100_000, 2_000_000)
    with TARGETS[target](tmp_path, ports) as there:
        emit = there if isinstance(there, str) else getattr(there, "url", f"unix://{there}")
        command = [failing.__file__, emit, str(reads), *(f"{name}={url}" for name, url in urls.items())]
        with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
            try:
                cells = []
                while "cell" in (said := json.loads(process.stdout.readline())):
                    cells.append(said)
                assert process.wait(EXIT_S) == 0
            finally:
                process.kill()
    for cell in cells:
        judge(cell)
    assert len(cells) == len(urls) * 2 * (1 + len(failing.LOADERS)) * len(failing.ROWS)
    judge_memory(target, said, reads)


def judge(said):
    redis, command, kind, loader, key = said["cell"]
    expected = STOCK.get((redis, key)) or ["error", STOCK[redis]]
    assert said["stock"][:2] == expected, said
    if command == "declared" and expected == ["value", None]:
        assert said["ours"][:2] == LOADED[kind, loader], said
        assert said["calls"] == 1, said
        bound_s = failing.HUNG_S if kind == "sync" else failing.TIMEOUT_S
        took_s = said["ours_s"] - (bound_s if loader == "hangs" else 0.0)
        assert -0.1 < took_s < PATIENCE_S / 6, said
        return
    assert said["ours"] == said["stock"], said
    assert said["calls"] == 0, said
    assert said["ours_s"] <= said["stock_s"] + failing.SLACK_S, said


def judge_memory(target, said, reads):
    if target == "none":
        assert said["emitted"] == 0
        return
    assert said["emitted"] >= reads
    assert said["waiting"] <= HINTS_MAX, said
    assert said["emitted"] == said["delivered"] + said["waiting"] + sum(said["dropped"].values()), said
    assert said["grown_mb"] < MEMORY_MB, said
    assert said["faults"] == 0
    assert (said["delivered"] > 0) == (target == "updater"), said
