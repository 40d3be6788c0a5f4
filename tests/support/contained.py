"""A rendered container as a process of this machine: its arguments, environment, mounts, user and probe.

There is no kubelet here, so mounts are folders of the test, and paths of the container are replaced by theirs in
arguments, environment and configuration. As root on Linux the process gets what the pod would give it: its user and
groups, no capability, no way to gain one, and a file system of which only its own writable mounts can be written. As
another user it runs as that one; `how` says which.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from updater_process import ROOT

from cacheupdater.testing.children import dying_with_us

ISOLATED = os.geteuid() == 0 and all(map(shutil.which, ("unshare", "setpriv", "mount")))
how = (
    "as the container's user, without capabilities, on a read-only root"
    if ISOLATED
    else "as the user of the tests"
)


class Pod:
    """One pod's volumes, as folders; made by the kubelet's rules for fsGroup."""

    def __init__(self, folder, spec):
        self.folder, self.spec = Path(folder), spec
        self.group = spec["securityContext"]["fsGroup"]
        self.paths = {}
        for volume in spec["volumes"]:
            path = self.paths[volume["name"]] = self.folder / volume["name"]
            path.mkdir()
            if "emptyDir" in volume:
                path.chmod(0o2777)
            if ISOLATED:
                os.chown(path, 0, self.group)

    def contain(self, container, program, *, environment, places):
        return Contained(self, container, program, environment=environment, places=places)


class Contained:
    """One container's process."""

    def __init__(self, pod, container, program, *, environment, places):
        """`program` stands for the image's entry point; `places` are addresses of the container, and what stands for them
        here beside its mounts."""
        self._pod, self._container = pod, container
        self.places = {
            mount["mountPath"]: str(pod.paths[mount["name"]]) for mount in container["volumeMounts"]
        }
        self.places |= places
        self._command = [*program, *map(self.here, container.get("args", ()))]
        imports = os.pathsep.join((str(ROOT), str(ROOT / "client")))
        said = {each["name"]: self.here(each["value"]) for each in container.get("env", ())}
        self._environment = {"PATH": os.defpath, "PYTHONPATH": imports, **said, **environment}
        self._log = pod.folder / f"{container['name']}.log"
        self.process = None

    def here(self, text):
        """With our paths for the container's."""
        longest_first = sorted(self.places, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, longest_first)), lambda found: self.places[found[0]], text)

    def start(self):
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                dying_with_us([*self._confined(), *self._command]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                cwd=self._pod.folder,
                text=True,
            )
        return self

    def _confined(self):
        """What the kubelet and the runtime do before the command."""
        if not ISOLATED:
            return []
        security = self._container["securityContext"]
        binds = ["mount --make-rprivate /"]
        binds += [f"mount --bind {path} {path}" for path in self._pod.paths.values()]
        binds.append("mount -o remount,ro,bind /")
        for mount in self._container["volumeMounts"]:
            if mount.get("readOnly"):
                binds.append(f"mount -o remount,ro,bind {self._pod.paths[mount['name']]}")
        user = security.get("runAsUser")
        group = security.get("runAsGroup", 0)
        drop = ["--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs", "--pdeathsig", "KILL"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["allowPrivilegeEscalation"] is False
        who = ["--reuid", str(user), "--regid", str(group), "--groups", str(self._pod.group)]
        return [
            shutil.which("unshare"),
            "--mount",
            "sh",
            "-c",
            " && ".join([*binds, 'exec "$@"']),
            "-",
            "setpriv",
            *who,
            *drop,
        ]

    def probe(self, port):
        """As the kubelet asks: any status from 200 to 399 within the timeout."""
        probe = self._container["livenessProbe"]
        assert probe["httpGet"]["port"] == self._container["ports"][0]["containerPort"]
        try:
            with urlopen(
                f"http://127.0.0.1:{port}{probe['httpGet']['path']}", timeout=probe["timeoutSeconds"]
            ) as answer:
                return 200 <= answer.status < 400
        except (URLError, OSError):
            return False

    @property
    def log(self):
        return self._log.read_text("utf-8", "replace")

    def end(self, within=30.0):
        """SIGTERM, as the kubelet sends it; how long it took, and the exit code."""
        began = time.monotonic()
        self.process.terminate()
        code = self.process.wait(within)
        self.process.stdout.close()
        return time.monotonic() - began, code

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        if self.process is not None:
            self.process.stdout.close()
