"""A Kubernetes API server of a test's own: etcd and kube-apiserver on 127.0.0.1, for as long as a `with` lasts.

Its judgement is real: schemas, defaults, admission with Pod Security, custom resources. There is no controller and no kubelet,
so an object has no effect. This module makes the accounts that a controller would make, and `pods` returns the pods that the
controllers would create.
"""

from __future__ import annotations

import copy
import http.client
import json
import re
import secrets
import shutil
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from live.updater_process import eventually
from servers.certificates import Authority

from cacheupdater.local.children import Child
from cacheupdater.local.ports import free_port

if TYPE_CHECKING:
    from kube.binaries import Binaries

START_S = 300.0  # five seconds on two idle cores; 90 s were seen beside other work
ANSWER_S = 30.0
TRIES = 3  # another process may take a free port between our look and the server's start
OK, CREATED, FORBIDDEN = 200, 201, 403
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
WORKLOADS = {"Deployment", "StatefulSet"}
_CONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://127.0.0.1:PORT", certificate-authority: "AUTHORITY"}}]
users: [{name: test, user: {token: TOKEN}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
"""


@dataclass(frozen=True)
class Answer:
    """An answer of the API server. `warnings` are those that kubectl would print."""

    status: int
    body: dict
    warnings: list[str]

    @property
    def message(self):
        return self.body.get("message", "")


class _Server(Child):
    """One of the two programs."""

    _STOP_TIMEOUT_S = 10.0

    def __init__(self, command, log):
        super().__init__()
        self.log = log
        self._run(command, log)

    def said(self):
        return self.log.read_text("utf-8", "replace")[-4000:]


class Cluster:
    """One API server. `ask` sends it requests; `kubeconfig` is for helm."""

    def __init__(self, binaries: Binaries):
        self._binaries = binaries
        self.folder = Path(tempfile.mkdtemp(prefix="cacheupdater-cluster-"))
        self.kubeconfig = self.folder / "kubeconfig"
        self._token = secrets.token_hex()
        self._servers = []
        self._connection = None
        self._kinds = []

    def __enter__(self) -> Self:
        try:
            self._bring_up()
        except BaseException:
            self.close()
            raise
        return self

    def _bring_up(self):
        authority = Authority(self.folder)
        certificate, key = authority.vouch("kube-apiserver")
        trust = ssl.create_default_context(cafile=authority.ca)
        (self.folder / "tokens.csv").write_text(f'{self._token},admin,admin,"system:masters"\n')
        for _ in range(TRIES):
            port = self._start(certificate, key)
            self._connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=ANSWER_S, context=trust)
            if eventually(self._ready_or_dead, within=START_S, every=0.1) == "ready":
                break
            said = "\n".join(f"--- {each.log.name} ---\n{each.said()}" for each in self._servers)
            self._stop()
        else:
            raise AssertionError(f"kube-apiserver does not start:\n{said}")
        text = _CONFIG.replace("PORT", str(port)).replace("TOKEN", self._token)
        self.kubeconfig.touch(0o600)  # helm warns of one that others may read
        self.kubeconfig.write_text(text.replace("AUTHORITY", str(authority.ca)))

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _stop(self):
        if self._connection is not None:
            self._connection.close()
        while self._servers:
            self._servers.pop().stop()  # the API server before its etcd

    def _start(self, certificate, key):
        """Starts both programs and returns the API server's port."""
        store, peers, port = free_port(), free_port(), free_port()
        etcd = {
            "data-dir": self.folder / f"etcd-{store}",
            "listen-client-urls": f"http://127.0.0.1:{store}",
            "advertise-client-urls": f"http://127.0.0.1:{store}",
            "listen-peer-urls": f"http://127.0.0.1:{peers}",
            "initial-advertise-peer-urls": f"http://127.0.0.1:{peers}",
            "initial-cluster": f"default=http://127.0.0.1:{peers}",
            "unsafe-no-fsync": "true",  # nothing of it outlives the test
        }
        apiserver = {
            "etcd-servers": f"http://127.0.0.1:{store}",
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": port,
            "tls-cert-file": certificate,
            "tls-private-key-file": key,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": certificate,
            "service-account-signing-key-file": key,
            "service-cluster-ip-range": "10.0.0.0/16",
            "token-auth-file": self.folder / "tokens.csv",
            "anonymous-auth": "false",
            "authorization-mode": "RBAC",
            "allow-privileged": "true",  # as with kubeadm: refusing is left to Pod Security
            "endpoint-reconciler-type": "none",
        }
        for program, options in ((self._binaries.etcd, etcd), (self._binaries.apiserver, apiserver)):
            command = [program, *(f"--{name}={value}" for name, value in options.items())]
            self._servers.append(_Server(command, self.folder / f"{Path(program).name}.log"))
        return port

    def _ready_or_dead(self):
        if not all(each.running for each in self._servers):
            return "dead"
        try:
            return "ready" if self.ask("GET", "/readyz").status == OK else ""
        except OSError:
            self._connection.close()
            return ""

    def ask(self, method, path, body=None) -> Answer:
        """One request, as cluster-admin."""
        said = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._connection.request(method, path, None if body is None else json.dumps(body), said)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        warnings = [re.sub(r'^299 - "(.*)"$', r"\1", each) for each in answer.headers.get_all("Warning", [])]
        # some pages call their JSON plain text, and /readyz says "ok"
        return Answer(
            answer.status, json.loads(text) if text.startswith("{") else {"message": text}, warnings
        )

    def make(self, each, namespace=None, *, dry_run=False) -> Answer:
        """An object, or with `dry_run` the answer that it would get."""
        version = each["apiVersion"]
        base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        within = f"/namespaces/{namespace}" if namespace else ""
        path = f"{base}{within}/{self._plural(version, each['kind'])}"
        return self.ask("POST", path + ("?dryRun=All" if dry_run else ""), each)

    def must(self, each, namespace=None):
        answer = self.make(each, namespace)
        assert answer.status == CREATED, answer.message

    def namespace(self, name):
        """A new namespace that enforces, audits and warns by `restricted`, with the default account of pods."""
        self.must(_named("Namespace", name, labels=RESTRICTED))
        self.must(_named("ServiceAccount", "default"), name)
        return name

    def define(self, definitions):
        """Defines custom resources. Returns when they can be used and are described."""
        for each in definitions:
            self.must(each)
        for each in definitions:
            spec = each["spec"]
            place = f"apis/{spec['group']}/{spec['versions'][0]['name']}"
            many = f"/{place}/{spec['names']['plural']}"
            eventually(lambda at=many: self.ask("GET", at).status == OK)
            eventually(lambda at=place: at in self.ask("GET", "/openapi/v3").body["paths"])
        self._kinds = []

    def objects(self, namespace):
        """Everything in it that can be listed, by kind and name, except the API server's own events."""
        found = {}
        for base, plural, kind in self._namespaced():
            answer = self.ask("GET", f"{base}/namespaces/{namespace}/{plural}")
            assert answer.status == OK, f"{base} {plural}: {answer.message}"
            found |= {
                (kind, each["metadata"]["name"]): {"kind": kind, **each} for each in answer.body["items"]
            }
        return found

    def _plural(self, version, kind):
        base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        return next(
            each["name"]
            for each in self.ask("GET", base).body["resources"]
            if each["kind"] == kind and "/" not in each["name"]
        )

    def _namespaced(self):
        if not self._kinds:
            groups = self.ask("GET", "/apis").body["groups"]
            bases = ["/api/v1", *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups)]
            self._kinds = [
                (base, each["name"], each["kind"])
                for base in bases
                for each in self.ask("GET", base).body["resources"]
                if each["namespaced"] and "list" in each["verbs"] and each["kind"] != "Event"
            ]
        return self._kinds


def _named(kind, name, *, labels=None):
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": labels or {}}}


def pods(objects):
    """The objects that controllers would create for these: a pod for each workload, and a StatefulSet's claims."""
    for each in objects:
        if each["kind"] not in WORKLOADS:
            continue
        name, spec = f"{each['metadata']['name']}-0", each["spec"]
        pod = copy.deepcopy(spec["template"])
        pod["metadata"]["name"] = name
        for claim in spec.get("volumeClaimTemplates", ()):
            kind = claim["metadata"]["name"]
            made = copy.deepcopy(claim)
            made["metadata"]["name"] = f"{kind}-{name}"
            yield {**made, "apiVersion": "v1", "kind": "PersistentVolumeClaim"}
            volume = {"name": kind, "persistentVolumeClaim": {"claimName": f"{kind}-{name}"}}
            pod["spec"].setdefault("volumes", []).append(volume)
        yield {**pod, "apiVersion": "v1", "kind": "Pod"}
