"""One release of a chart in a namespace of a `Cluster`, moved by the real helm; every line that sounds like a warning is kept.

helm gets an environment of its own: whatever of the user's names a cluster (KUBECONFIG, HELM_KUBEAPISERVER and the like)
is not handed on, so that no test ever reaches it.
"""

from __future__ import annotations

import os
import re
import subprocess

from chart_tools import helm, objects

NAME = "shop"
HELM_S = 60.0
CALLS: list[str] = []  # of all releases; a run that says "no warnings" says of how many calls


class Release:
    """`warnings` is all that helm or the API server had to remark so far."""

    def __init__(self, cluster, namespace):
        self._cluster = cluster
        self.namespace = cluster.namespace(namespace)
        self.warnings = []

    def helm(self, *arguments):
        """What it prints. What it says on stderr is a warning, where it has not failed."""
        done = subprocess.run(
            [helm(), *map(str, arguments), "--namespace", self.namespace],
            env={
                "PATH": os.defpath,
                "HOME": str(self._cluster.folder),
                "KUBECONFIG": str(self._cluster.kubeconfig),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=HELM_S,
        )
        CALLS.append(arguments[0])
        assert done.returncode == 0, f"helm {arguments[0]}: {done.stderr}"
        self.warnings += done.stderr.splitlines()
        self.warnings += [
            line for line in done.stdout.splitlines() if re.search("warning", line, re.IGNORECASE)
        ]
        return done.stdout

    def install(self, chart, *options):
        return self.helm("install", NAME, chart, *options)

    def upgrade(self, chart, *options):
        return self.helm("upgrade", NAME, chart, *options)

    def rollback(self, revision):
        return self.helm("rollback", NAME, revision)

    def uninstall(self):
        return self.helm("uninstall", NAME)

    def hooks(self):
        """The objects of `helm test`, which is not run."""
        return objects(self.helm("get", "hooks", NAME))

    def objects(self):
        """All that stands in the namespace, by kind and name, but what helm keeps for itself."""
        found = self._cluster.objects(self.namespace)
        return {name: each for name, each in found.items() if each.get("type") != "helm.sh/release.v1"}

    def asked(self, each):
        """The API server's answer to an object that is not made; what it warns of is kept."""
        answer = self._cluster.make(each, self.namespace, dry_run=True)
        self.warnings += answer.warnings
        return answer
