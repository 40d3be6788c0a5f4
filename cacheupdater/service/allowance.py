"""How much of its machine this process may use: the cores and the memory that a container's control group allows.

A process in a container sees all cores and all memory of its host. Its limits stand in files of its control group (versions 1
and 2 have different files) and of the groups above it; the tightest limit holds. `run --workers auto` and the service read
the limits once, at the start. A limit that changes while the process runs is seen at the next start. Only files are read.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPTH_MAX = 32  # groups that are read, ours and those above it; Kubernetes nests five
UNLIMITED = 1 << 60  # bytes: version 1 writes a number near 2^63 for "no limit"


class Allowance(NamedTuple):
    """The limits of a process. None: no limit but the machine's."""

    cores: float | None
    memory: int | None  # bytes


class _Mount(NamedTuple):
    shows: PurePosixPath  # the group that is mounted at `at`; in a container this may be its own group
    at: PurePosixPath
    controllers: frozenset[str]  # empty in version 2, which has all controllers in one tree


def allowed(root: Path = Path("/")) -> Allowance:
    """The limits of this process' group. `root` is the folder that holds `proc` and the mounts."""
    folders = list(_folders(root))
    cores = [found for each in folders if (found := _cores(each)) is not None]
    memory = [found for each in folders if (found := _memory(each)) is not None]
    return Allowance(min(cores, default=None), min(memory, default=None))


def whole_cores(machine: int, quota: float | None) -> int:
    """How many processes can each keep a core busy. One more, for a fraction of a core, would make all of them stop and wait."""
    return machine if quota is None else max(1, min(machine, int(quota)))


def usable_cores() -> int:
    """The cores that this process may use, by its affinity and its quota."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    return whole_cores(len(os.sched_getaffinity(0)), allowed().cores)


def _folders(root: Path) -> Iterator[Path]:
    """Every folder whose files limit this process: those of its groups, and of the groups above."""
    mounts = list(_mounts(_read(root / "proc/self/mountinfo")))
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        mine = frozenset(filter(None, controllers.split(",")))
        for mount in mounts:
            if mount.controllers >= mine and bool(mount.controllers) == bool(mine):
                yield from _upwards(root, mount, PurePosixPath(group))


def _upwards(root: Path, mount: _Mount, group: PurePosixPath) -> Iterator[Path]:
    # where the mount is outside our group's path, the container has a cgroup namespace, and the mount is its own group
    inside = group.relative_to(mount.shows) if group.is_relative_to(mount.shows) else PurePosixPath()
    top = root / mount.at.relative_to("/")
    for _, each in zip(range(DEPTH_MAX), (inside, *inside.parents), strict=False):
        if ".." not in each.parts:
            yield top / each


def _mounts(text: str) -> Iterator[_Mount]:
    """The mounts of control groups, from the lines of `mountinfo`."""
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
    """The number, or None for no limit: version 2 writes `max`, version 1 writes -1."""
    return int(text) if text.strip().isdecimal() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # no such controller, or no right to read it: then no limit is known
