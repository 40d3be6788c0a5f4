"""The limits that a container's control group sets, in files as Docker, Kubernetes and systemd lay them out."""

from __future__ import annotations

import argparse
import asyncio

import pytest

from cacheupdater.service.allowance import Allowance, allowed, whole_cores

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate\n"
MIB = 1 << 20


def machine(root, groups, mounts, files):
    """A machine of files; what it allows."""
    texts = {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts, **files}
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return allowed(root)


def v1(controllers, shows="/"):
    at = f"/sys/fs/cgroup/{controllers}"
    return f"31 23 0:27 {shows} {at} rw,nosuid shared:9 - cgroup cgroup rw,{controllers}\n"


def test_a_container_of_version_2_has_its_quota_and_its_memory(tmp_path):
    files = {"sys/fs/cgroup/cpu.max": "250000 100000\n", "sys/fs/cgroup/memory.max": f"{512 * MIB}\n"}
    assert machine(tmp_path, "0::/\n", V2, files) == Allowance(2.5, 512 * MIB)


def test_without_limits_of_version_2_the_machine_is_the_limit(tmp_path):
    files = {"sys/fs/cgroup/cpu.max": "max 100000\n", "sys/fs/cgroup/memory.max": "max\n"}
    assert machine(tmp_path, "0::/\n", V2, files) == Allowance(None, None)


def test_the_tightest_of_the_groups_above_binds(tmp_path):
    files = {
        "sys/fs/cgroup/pods/cpu.max": "300000 100000\n",
        "sys/fs/cgroup/pods/one/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/pods/one/box/cpu.max": "max 100000\n",
        "sys/fs/cgroup/pods/memory.max": f"{64 * MIB}\n",
        "sys/fs/cgroup/pods/one/box/memory.max": f"{256 * MIB}\n",
    }
    assert machine(tmp_path, "0::/pods/one/box\n", V2, files) == Allowance(1.5, 64 * MIB)


def test_version_1_has_a_tree_for_each_controller(tmp_path):
    files = {
        "sys/fs/cgroup/cpu,cpuacct/shop/cpu.cfs_quota_us": "50000\n",
        "sys/fs/cgroup/cpu,cpuacct/shop/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/shop/memory.limit_in_bytes": f"{128 * MIB}\n",
    }
    groups = "4:memory:/shop\n2:cpu,cpuacct:/shop\n0::/\n"
    assert machine(tmp_path, groups, v1("cpu,cpuacct") + v1("memory") + V2, files) == Allowance(
        0.5, 128 * MIB
    )


def test_version_1_says_that_nothing_is_limited_with_numbers(tmp_path):
    files = {
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    }
    assert machine(tmp_path, "4:memory:/\n2:cpu:/\n", v1("cpu") + v1("memory"), files) == Allowance(
        None, None
    )


@pytest.mark.parametrize("shows", ["/docker/4f1c", "/somewhere/else"])
def test_a_container_sees_its_own_group_where_its_tree_is_mounted(tmp_path, shows):
    files = {
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    assert machine(tmp_path, "2:cpu:/docker/4f1c\n", v1("cpu", shows), files).cores == 2.0


def test_a_group_outside_of_our_view_leads_nowhere_else(tmp_path):
    files = {"sys/fs/cgroup/cpu.max": "100000 100000\n", "sys/fs/cpu.max": "1000 100000\n"}
    assert machine(tmp_path, "0::/../../other\n", V2, files).cores == 1.0


def test_a_machine_without_control_groups_allows_all(tmp_path):
    assert allowed(tmp_path) == Allowance(None, None)


@pytest.mark.parametrize(
    ("machine", "quota", "count"),
    [(8, None, 8), (8, 2.0, 2), (8, 2.9, 2), (8, 0.5, 1), (2, 6.0, 2)],
)
def test_a_quota_counts_by_whole_cores_and_one_at_least(machine, quota, count):
    assert whole_cores(machine, quota) == count


async def test_a_service_in_a_small_container_remembers_less(monkeypatch, tmp_path, caplog):
    import cacheupdater.service
    from cacheupdater.config import load_config
    from cacheupdater.core.limits import Limits

    monkeypatch.setattr("cacheupdater.service.service.allowed", lambda: Allowance(1.0, 256 * MIB))
    file = tmp_path / "cacheupdater.yaml"
    file.write_text(
        '{version: 1, listen: ["memory://small"], cache: {url: "redis://127.0.0.1:1/0"},'
        " sources: {main: {budget: 9/s}},"
        ' namespaces: {one: {key: "one:{id:int}", load: {source: main, python: "json:loads"}}}}'
    )
    stop, ready = asyncio.Event(), asyncio.Queue()
    service = cacheupdater.service.Service(load_config(file, {}))
    with caplog.at_level("INFO"):
        running = asyncio.ensure_future(service.run(ready.put_nowait, stop))
        assert await asyncio.wait_for(ready.get(), 30) == "memory://small"
    stop.set()
    assert await asyncio.wait_for(running, 30) == 0
    learned = Limits().within(256 * MIB, partitions=1).learned
    assert f"256 MiB of memory: each partition may learn about {learned} keys" in caplog.text
    assert service._turnover.now.pricing.policies[0].table.most == learned


def test_workers_auto_counts_what_the_container_may_use(monkeypatch):
    from cacheupdater.cli.run import _count, _workers

    monkeypatch.setattr("cacheupdater.service.allowance.allowed", lambda: Allowance(1.7, None))
    assert _workers(argparse.Namespace(workers=_count("auto"))) == 1
    assert _count("7") == 7
