"""Takes from the image what its base has and nobody needs: setuid bits, folders that all may write, pip.

Run once by the Dockerfile, as root, by the interpreter itself: a base without a shell will do. /tmp stays as it is, for
whoever runs the image without an emptyDir there.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path

KEPT = (
    "/tmp",
    "/proc",
    "/sys",
    "/dev",
)  # the first is everybody's by design, the others are no files of the image
TAKEN = ("pip", "ensurepip", "pip-*.dist-info")
SETUID = stat.S_ISUID | stat.S_ISGID


def seal(root: Path) -> None:
    """Every file below `root`, without following a link or leaving its file system."""
    device = root.stat().st_dev
    for folder, folders, files in os.walk(root):
        folders[:] = [each for each in folders if _ours(Path(folder, each), device)]
        for name in (*folders, *files):
            _mend(Path(folder, name))


def _ours(path: Path, device: int) -> bool:
    about = path.lstat()
    return stat.S_ISDIR(about.st_mode) and about.st_dev == device and str(path) not in KEPT


def _mend(path: Path) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return
    kept = stat.S_IMODE(mode)
    if stat.S_ISREG(mode):
        kept &= ~SETUID
    if kept & stat.S_IWOTH:
        kept &= ~(stat.S_IWOTH | stat.S_ISVTX)
    if kept != stat.S_IMODE(mode):
        path.chmod(kept)


def without_pip(paths: list[str]) -> None:
    """An installed program that can install others is none of ours."""
    for path in map(Path, paths):
        for found in (each for pattern in TAKEN for each in path.glob(pattern)):
            shutil.rmtree(found)


if __name__ == "__main__":
    without_pip([each for each in sys.path[1:] if each and Path(each).is_dir()])
    seal(Path("/"))
