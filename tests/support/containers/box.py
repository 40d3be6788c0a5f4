"""Runs the image that `make image` has built as a container engine would: with its user, its environment, a read-only root.

It needs no engine: it uses a mount namespace of its own, a chroot, and the OCI configuration. Volumes are as in the chart:
/tmp, /run/cacheupdater and /var/lib/cacheupdater in memory, the configuration and loaders read-only. The network is the
machine's. An engine's seccomp and control groups are missing.

    python box.py ROOT CONFIG COMMAND      is what runs within the namespaces; tests use `Box`
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

UID = 65532
WRITABLE = ("tmp", "run/cacheupdater", "var/lib/cacheupdater")
DEVICES = ("null", "zero", "random", "urandom")
NO_NEW_PRIVILEGES = 38  # of prctl
KILLED_S = 30.0


class Box:
    """The image, as `build/image/built.json` describes it."""

    def __init__(self, built: Path) -> None:
        about = json.loads(built.read_text())
        self.root = Path(about["root"])
        self.config = about["config"]
        self.sizes = about["sizes"]
        self.sbom = json.loads(built.with_name("sbom.cdx.json").read_text())

    def start(self, *arguments, volumes=None, entrypoint=None, **options):
        """Starts a container. `arguments` replace the image's own; `volumes` are by their path within, read-only."""
        command = [*(entrypoint or self.config["Entrypoint"]), *(arguments or self.config["Cmd"])]
        said = json.dumps({**self.config, "volumes": {k: str(v) for k, v in (volumes or {}).items()}})
        spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--ipc", "--uts"]
        inside = [sys.executable, "-I", __file__, str(self.root), said, *command]
        return subprocess.Popen(
            [*spaces, *inside], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
        )

    def run(self, *arguments, timeout=KILLED_S, **options):
        """Runs a container from its start to its end."""
        process = self.start(*arguments, **options)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def first_process(container):
    """The machine's number of the container's process 1, to which an engine would send its signal."""
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
    assert len(children) == 1
    return int(children[0])


def _mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def _enter(root, config):
    """Makes the mounts as an engine would, then changes the root, then the user."""
    _mount("--make-rprivate", "/")
    _mount("--bind", root, root)
    for each in WRITABLE:
        mode = "1777" if each == "tmp" else "0755"
        _mount("-t", "tmpfs", "-o", f"size=64m,mode={mode},uid={UID},gid={UID}", "tmpfs", f"{root}/{each}")
    for within, volume in config["volumes"].items():
        _mount("--bind", volume, f"{root}{within}")
        _mount("-o", "remount,bind,ro", f"{root}{within}")
    _mount("-t", "tmpfs", "-o", "size=1m,mode=0755", "tmpfs", f"{root}/dev")
    for each in DEVICES:
        Path(f"{root}/dev/{each}").touch()
        _mount("--bind", f"/dev/{each}", f"{root}/dev/{each}")
    _mount("-t", "proc", "proc", f"{root}/proc")
    _mount("-o", "remount,bind,ro", root)
    os.chroot(root)
    os.chdir(config["WorkingDir"])
    user, group = map(int, config["User"].split(":"))
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
    ctypes.CDLL(None).prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def main():
    root, config, *command = sys.argv[1:]
    config = json.loads(config)
    _enter(root, config)
    environment = dict(each.split("=", 1) for each in config["Env"])
    os.execvpe(command[0], command, environment)


if __name__ == "__main__":
    main()
