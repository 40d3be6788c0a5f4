"""One release of a chart in a namespace of a `Cluster`, handled by the real helm. Every warning is kept.

helm gets an environment of its own, without variables that name a cluster of the user (KUBECONFIG, HELM_KUBEAPISERVER and the
like), so that no test ever reaches it.
"""

from __future__ import annotations

import os
import re
import subprocess

from kube.chart_tools import helm, objects

NAME = "shop"
HELM_S = 60.0
CALLS: list[str] = []  # of all releases: a run that reports "no warnings" also reports the number of calls


class Release:
    """One release. `warnings` are all those of helm and the API server so far."""

    def __init__(self, cluster, namespace):
        self._cluster = cluster
        self.namespace = cluster.namespace(namespace)
        self.warnings = []

    def helm(self, *arguments):
        """The output of helm. If it succeeds, its lines on stderr count as warnings."""
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
        """All objects in the namespace, by kind and name, except helm's own."""
        found = self._cluster.objects(self.namespace)
        return {name: each for name, each in found.items() if each.get("type") != "helm.sh/release.v1"}

    def asked(self, each):
        """The API server's answer to a dry run of this object. Its warnings are kept."""
        answer = self._cluster.make(each, self.namespace, dry_run=True)
        self.warnings += answer.warnings
        return answer
