"""What this process may use of its machine: the cores and the memory that a container's control group leaves it.

A process in a container sees every core of its host and all of its memory; what it may spend is written in files of
its control group (version 1 and 2 have their own) and of the groups above it, of which the tightest binds. Asked once
at a start, by `run --workers auto` and by the service for its tables. Reads files and nothing else: a limit that is
changed while we run is seen at the next start.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPTH_MAX = 32  # groups above ours that are looked at; Kubernetes nests five
UNLIMITED = 1 << 60  # bytes: version 1 says "no limit" with a number near 2^63


class Allowance(NamedTuple):
    """None: as much as the machine has."""

    cores: float | None
    memory: int | None  # bytes


class _Mount(NamedTuple):
    shows: PurePosixPath  # the group that is seen at `at`; within a container that may be its own
    at: PurePosixPath
    controllers: frozenset[str]  # none in version 2, which has all of them in one tree


def allowed(root: Path = Path("/")) -> Allowance:
    """Of the group that this process is in. `root` is where `proc` and the mounts are found."""
    folders = list(_folders(root))
    cores = [found for each in folders if (found := _cores(each)) is not None]
    memory = [found for each in folders if (found := _memory(each)) is not None]
    return Allowance(min(cores, default=None), min(memory, default=None))


def whole_cores(machine: int, quota: float | None) -> int:
    """How many processes can each keep a core busy. One more for the rest of a quota would only stop them all."""
    return machine if quota is None else max(1, min(machine, int(quota)))


def usable_cores() -> int:
    """Of this machine, for this process: by its affinity and its quota."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    return whole_cores(len(os.sched_getaffinity(0)), allowed().cores)


def _folders(root: Path) -> Iterator[Path]:
    """Every folder whose files bind this process: its groups', and those of the groups above."""
    mounts = list(_mounts(_read(root / "proc/self/mountinfo")))
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        mine = frozenset(filter(None, controllers.split(",")))
        for mount in mounts:
            if mount.controllers >= mine and bool(mount.controllers) == bool(mine):
                yield from _upwards(root, mount, PurePosixPath(group))


def _upwards(root: Path, mount: _Mount, group: PurePosixPath) -> Iterator[Path]:
    # a mount of another tree than ours: with a namespace of its own the container's group is what is shown there
    inside = group.relative_to(mount.shows) if group.is_relative_to(mount.shows) else PurePosixPath()
    top = root / mount.at.relative_to("/")
    for _, each in zip(range(DEPTH_MAX), (inside, *inside.parents), strict=False):
        if ".." not in each.parts:
            yield top / each


def _mounts(text: str) -> Iterator[_Mount]:
    """Of the lines of `mountinfo`, those of control groups."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        if kind not in {"cgroup", "cgroup2"}:
            continue
        shows, at = map(PurePosixPath, before.split()[3:5])
        names = options.split()[-1].split(",") if kind == "cgroup" else ()
        yield _Mount(shows, at, frozenset(names))


def _cores(folder: Path) -> float | None:
    new = _read(folder / "cpu.max").split() or [_read(folder / "cpu.cfs_quota_us").strip()]
    quota = _number(new[0])
    period = _number(new[1] if len(new) > 1 else _read(folder / "cpu.cfs_period_us"))
    return quota / period if quota and period else None


def _memory(folder: Path) -> int | None:
    size = _number(_read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes"))
    return size if size is not None and size < UNLIMITED else None


def _number(text: str) -> int | None:
    """Version 2 writes `max` for no limit, version 1 writes -1."""
    return int(text) if text.strip().isdecimal() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # no such controller here, or none that we may see: nothing limits us that we could know
