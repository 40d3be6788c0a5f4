"""A rendered container as a process of this machine: its arguments, environment, mounts, user and probes.

There is no kubelet here, so mounts are folders of the test. Their paths replace those of the container in arguments,
environment and configuration. A port of the container becomes a free port of this machine. As root on Linux the process gets
what the pod would give it: its user and groups, no capability, no way to gain one, and a file system in which only its own
writable mounts can be written. If the test runs as another user, the process does too; `how` says which, and why.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from live.updater_process import ROOT

from cacheupdater.local.children import dying_with_us
from cacheupdater.local.ports import free_port

IMPORTS = os.pathsep.join((str(ROOT), str(ROOT / "client")))
IMAGE = {  # the Dockerfile's, but where its programs lie
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "HOME": "/tmp",
    "CACHEUPDATER_CONFIG": "/etc/cacheupdater/cacheupdater.yaml",
}
USER = 65532  # of the image
CONFIG_MODE = 0o644  # of files in volumes that name none
TRIED_S = 60.0  # one start of Python
_TRY_TO_WRITE = """
import os, sys
for folder in sys.argv[1:]:
    try:
        open(folder + "/probe", "w").close()
        print("wrote", folder)
    except OSError:
        print("refused", folder)
wanted = ("CapEff", "CapPrm", "CapBnd")
print(os.getuid(), os.getgroups(), [each.split()[1] for each in open("/proc/self/status") if each[:6] in wanted])
"""


def _confined(binds, who):
    """The setup that the kubelet and the runtime do before the command. `who` is its user, group and further group."""
    mounts = ["mount --make-rprivate /", *_reachable(), *binds, 'exec "$@"']
    user, group, more = map(str, who)
    drop = ["--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs", "--pdeathsig", "KILL"]
    setpriv = ["setpriv", "--reuid", user, "--regid", group, "--groups", more, *drop]
    return [shutil.which("unshare"), "--mount", "sh", "-c", " && ".join(mounts), "-", *setpriv]


def _reachable():
    """Mounts by which any user finds the interpreter and the project, even below a folder of root's alone.

    That folder, such as root's home, then appears empty except for the needed parts.
    """
    hidden = {}
    for path in dict.fromkeys(map(Path, (sys.base_prefix, sys.prefix, ROOT))):
        closed = [each for each in reversed(path.parents) if not each.stat().st_mode & stat.S_IXOTH]
        if closed:
            hidden.setdefault(closed[0], []).append(path)
    for above, paths in hidden.items():
        yield "mount -t tmpfs -o mode=0755 tmpfs /mnt"
        for number, path in enumerate(paths):
            yield f"mkdir /mnt/{number} && mount --rbind {path} /mnt/{number}"
        yield f"mount -t tmpfs -o mode=0755 tmpfs {above}"
        for number, path in enumerate(paths):
            yield f"mkdir -p {path} && mount --move /mnt/{number} {path}"
        yield "umount /mnt"


def _obstacle():
    """Why no process can be the container's user here; empty if one can."""
    if os.geteuid() != 0:
        return "the tests do not run as root"
    lacking = [each for each in ("unshare", "setpriv", "mount") if not shutil.which(each)]
    if lacking:
        return f"there is no {' and no '.join(lacking)}"
    itself = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import cacheupdater, redis'], check=True)"
    tried = subprocess.run(
        [*_confined([], (USER, USER, USER)), sys.executable, "-c", itself],
        env={"PATH": os.defpath, "PYTHONPATH": IMPORTS},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    return f"user {USER} cannot run {sys.executable}: {tried.stderr[-200:]}" if tried.returncode else ""


OBSTACLE = _obstacle()
ISOLATED = not OBSTACLE
how = (
    "as the container's user, without capabilities, on a read-only root"
    if ISOLATED
    else f"as the user of the tests, with all that it may do, for {OBSTACLE}"
)


class Pod:
    """One pod's volumes, as folders, made by the kubelet's rules for fsGroup; and its ports."""

    def __init__(self, folder, spec, *, contents=None):
        """`contents` are the texts of ConfigMaps and Secrets, by kind and name: {("Secret", "shop"): {"TOKEN": "…"}}."""
        self.folder, self.spec, self.contents = Path(folder), spec, contents or {}
        self.group = spec["securityContext"]["fsGroup"]
        self.paths, self._ports, self._filled = {}, {}, set()
        for volume in spec["volumes"]:
            path = self.paths[volume["name"]] = self.folder / volume["name"]
            path.mkdir()
            if "emptyDir" in volume:
                path.chmod(0o2777)
            self._given(path)

    def port(self, number):
        """The port of this machine for a port of the pod."""
        return self._ports.setdefault(number, free_port())

    def contain(self, container, program, *, environment=None, places=None):
        return Contained(self, container, program, environment=environment or {}, places=places or {})

    def fill(self, names, here):
        """Writes the files of these volumes, once, with their texts changed by `here`."""
        for volume in self.spec["volumes"]:
            kind = "ConfigMap" if "configMap" in volume else "Secret"
            source = volume.get("configMap") or volume.get("secret")
            if source is None or volume["name"] not in names or volume["name"] in self._filled:
                continue
            self._filled.add(volume["name"])
            texts = self.contents[kind, source.get("name") or source["secretName"]]
            for name, text in texts.items():
                file = self.paths[volume["name"]] / name
                file.write_text(text if kind == "Secret" else here(text))  # a Secret is the test's own
                file.chmod(source.get("defaultMode", CONFIG_MODE))
                self._given(file)

    def _given(self, path):
        if ISOLATED:
            os.chown(path, 0, self.group)


class Contained:
    """One container's process."""

    def __init__(self, pod, container, program, *, environment, places):
        """`program` replaces the image's entry point. `environment` is added to the rendered one.

        `places` maps further addresses of the container, beside its mounts and ports, to those of this machine.
        """
        self._pod, self._container = pod, container
        self._mounts = container.get("volumeMounts", ())
        self.places = {each["mountPath"]: str(pod.paths[each["name"]]) for each in self._mounts}
        self._ports = {each.get("name"): each["containerPort"] for each in container.get("ports", ())}
        self.places |= {f"0.0.0.0:{each}": f"127.0.0.1:{pod.port(each)}" for each in self._ports.values()}
        self.places |= places
        pod.fill({each["name"] for each in self._mounts}, self.here)
        if "command" in container:  # our charts name Python alone
            assert container["command"][0] == "python3"
            program = [sys.executable, *map(self.here, container["command"][1:])]
        self._command = [*program, *map(self.here, container.get("args", ()))]
        self._environment = {**self._rendered_environment(), **environment}
        self._log = pod.folder / f"{container['name']}.log"
        self.process = None

    def here(self, text):
        """The text with our paths in place of the container's."""
        longest_first = sorted(self.places, key=len, reverse=True)
        if not longest_first:
            return text
        return re.sub("|".join(map(re.escape, longest_first)), lambda found: self.places[found[0]], text)

    def _rendered_environment(self):
        said = {name: self.here(text) for name, text in IMAGE.items()}
        said |= {"PATH": os.defpath, "PYTHONPATH": IMPORTS}
        if "/tmp" in self.places:
            said["TMPDIR"] = self.places["/tmp"]  # the root's own /tmp cannot be written
        for each in self._container.get("envFrom", ()):
            kind = "Secret" if "secretRef" in each else "ConfigMap"
            (source,) = each.values()
            said |= self._pod.contents[kind, source["name"]]
        for each in self._container.get("env", ()):
            text = re.sub(r"\$\((\w+)\)", lambda found: said.get(found[1], found[0]), each["value"])
            said[each["name"]] = self.here(text)
        return said

    def start(self):
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                dying_with_us([*self._before(), *self._command]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                cwd=self._pod.folder,
                text=True,
            )
        return self

    def _before(self):
        security = {**self._pod.spec["securityContext"], **self._container["securityContext"]}
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        if not ISOLATED:
            return []
        paths = {self._pod.paths[each["name"]]: each.get("readOnly", False) for each in self._mounts}
        binds = [f"mount --bind {path} {path}" for path in paths]
        binds.append("mount -o remount,ro,bind /")
        binds += [f"mount -o remount,ro,bind {path}" for path, read_only in paths.items() if read_only]
        return _confined(binds, (security["runAsUser"], security.get("runAsGroup", 0), self._pod.group))

    def tried(self, folders):
        """The names of those folders that its user can write into, and that user's identity and rights."""
        command, self._command = self._command, [sys.executable, "-c", _TRY_TO_WRITE, *map(str, folders)]
        out, _ = self.start().process.communicate(timeout=TRIED_S)
        self._command, self.process = command, None
        *said, who = out.splitlines()
        return {Path(each.split()[1]).name for each in said if each.startswith("wrote")}, who

    def probe(self, name="livenessProbe"):
        """Probes as the kubelet does: any status from 200 to 399 within the timeout is healthy."""
        probe = self._container[name]
        port = probe["httpGet"]["port"]
        port = self._ports.get(port, port)
        assert port in self._ports.values()
        url = f"http://127.0.0.1:{self._pod.port(port)}{probe['httpGet']['path']}"
        try:
            with urlopen(url, timeout=probe["timeoutSeconds"]) as answer:
                return 200 <= answer.status < 400
        except (URLError, OSError):
            return False

    @property
    def log(self):
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def end(self, within=30.0):
        """Sends SIGTERM, as the kubelet does. Returns the time that the end took, and the exit code."""
        began = time.monotonic()
        self.process.terminate()
        code = self.process.wait(within)
        self.process.stdout.close()
        return time.monotonic() - began, code

    def kill(self):
        """Sends SIGKILL, as for a process that runs out of memory. Does nothing if it does not run."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        if self.process is not None:
            self.process.stdout.close()
