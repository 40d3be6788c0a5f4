"""Runs a command as a restricted pod would, without a container, as far as this machine allows it.

    python restricted.py SETTINGS COMMAND      is what runs inside; tests call `command`

User 65534, no group, no capability, no way to gain one, a tree in which only the named folders can be written, process 1 of a
namespace of its own, and a filter that answers EPERM to system calls that no updater needs.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

UID = 65534
DIE_WITH_PARENT, NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER_MODE = 1, 38, 22, 2  # of prctl
BOUNDING_DROP, CAPABILITIES = 24, 64
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# numbers on x86_64 and on aarch64: the calls that the runtime's own profile refuses to a process without capabilities, and more
REFUSED = {
    "ptrace": (101, 117),
    "mount": (165, 40),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "io_uring_setup": (425, 425),
    "process_vm_readv": (310, 270),
    "chroot": (161, 51),
}


def missing():
    """What this machine lacks for it; empty if nothing."""
    lacking = []
    if sys.platform != "linux":
        return ["Linux"]
    if os.geteuid():
        lacking.append("root")
    if not shutil.which("unshare"):
        lacking.append("unshare")
    elif (
        not lacking
        and subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], check=False).returncode
    ):
        lacking.append("the right to make namespaces")
    return lacking


def command(*program, writable=()):
    """The command line for it. The program itself is process 1."""
    settings = json.dumps({"writable": [str(each) for each in writable]})
    spaces = [shutil.which("unshare"), "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
    return [*spaces, sys.executable, "-I", __file__, settings, *map(str, program)]


def _mount(*arguments):
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def _show(folder):
    """Makes a folder visible to all users, even below a folder of root's alone, as with interpreters of root's own."""
    closed = next((each for each in reversed(folder.parents) if not each.stat().st_mode & 0o001), None)
    if closed is None:
        return
    with tempfile.TemporaryDirectory() as aside:
        _mount("--bind", folder, aside)
        _mount("-t", "tmpfs", "-o", "mode=0755,size=1m", "tmpfs", closed)
        folder.mkdir(parents=True)
        _mount("--move", aside, folder)


def _close_the_tree(writable):
    _mount("--make-rprivate", "/")
    _show(Path(sys.base_prefix).resolve())
    for each in writable:
        _mount("--bind", each, each)
    for line in Path("/proc/self/mounts").read_text().splitlines():
        place = line.split()[1].encode().decode("unicode_escape")
        if place not in writable and not place.startswith(("/proc", "/sys")):
            subprocess.run(["mount", "-o", "remount,bind,ro", place], check=False, capture_output=True)
    _mount("-t", "proc", "proc", "/proc")


def _filter():
    """Installs the filter. Whether the machine accepts it."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        return False
    column = list(ARCHITECTURES).index(machine)
    numbers = [each[column] for each in REFUSED.values()]
    load, equal, answer = 0x20, 0x15, 0x06
    allow, refuse = 0x7FFF0000, 0x00050001  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | EPERM
    program = [
        (load, 0, 0, 4),
        (equal, 1, 0, ARCHITECTURES[machine]),
        (answer, 0, 0, refuse),
        (load, 0, 0, 0),
    ]
    for at, number in enumerate(numbers):
        program.append((equal, len(numbers) - at, 0, number))
    program += [(answer, 0, 0, allow), (answer, 0, 0, refuse)]
    code = b"".join(struct.pack("HBBI", *each) for each in program)
    buffer = ctypes.create_string_buffer(code)
    head = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    return ctypes.CDLL(None).prctl(SET_SECCOMP, FILTER_MODE, ctypes.c_char_p(head), 0, 0) == 0


def main():
    settings, *program = sys.argv[1:]
    _close_the_tree(json.loads(settings)["writable"])
    libc = ctypes.CDLL(None)
    for number in range(CAPABILITIES):
        libc.prctl(BOUNDING_DROP, number, 0, 0, 0)
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)  # again: the change of user has reset it
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    os.environ["RESTRICTED_SECCOMP"] = str(int(_filter()))  # noqa: TID251  the program can report it
    os.execvp(program[0], program)


if __name__ == "__main__":
    main()
