"""Each field that Pod Security's `restricted` demands is missed by the API server itself when it goes from one of our pods.

The pods are those that stand in the cluster after `helm install`, with the API server's own defaults: the updater's, the
one of `helm test`, and an application's with the sidecar. Nothing is made: admission judges a dry run as it would the pod.
"""

from __future__ import annotations

import copy

import pytest
from kube import sidecar_chart
from kube.chart_tools import CHART
from kube.cluster import CREATED, FORBIDDEN, pods
from kube.release import Release

REFUSED = 'violates PodSecurity "restricted:latest"'
CONTAINERS = [
    ("updater", "cacheupdater"),
    ("test", "test"),
    ("application", "cacheupdater"),
    ("application", "shop"),
]
"""By pod: ours, and the container of our tests' application, which the documentation shows as one that is admitted."""

TAKEN_OUT = {
    "allowPrivilegeEscalation": "allowPrivilegeEscalation != false",
    "capabilities": "unrestricted capabilities",
    "runAsNonRoot": "runAsNonRoot != true",
    "seccompProfile": "seccompProfile",
}
"""By field: what admission says of its absence."""

TURNED = {
    "hostNetwork": ("host namespaces", lambda spec, security: spec.update(hostNetwork=True)),
    "hostPID": ("host namespaces", lambda spec, security: spec.update(hostPID=True)),
    "hostIPC": ("host namespaces", lambda spec, security: spec.update(hostIPC=True)),
    "hostPath": (
        "restricted volume types",
        lambda spec, security: spec["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
    ),
    "hostPort": (
        "hostPort",
        lambda spec, security: spec["containers"][0].update(
            ports=[{"containerPort": 9090, "hostPort": 9090}]
        ),
    ),
    "privileged": (
        "privileged",
        lambda spec, security: security.update(privileged=True, allowPrivilegeEscalation=True),
    ),
    "capabilities.add": (
        "unrestricted capabilities",
        lambda spec, security: security["capabilities"].update(add=["NET_ADMIN"]),
    ),
    "runAsUser": ("runAsUser=0", lambda spec, security: security.update(runAsUser=0)),
    "seccompProfile": (
        "seccompProfile",
        lambda spec, security: security.update(seccompProfile={"type": "Unconfined"}),
    ),
}
"""Fields that we do not have, or have otherwise: what admission says of them, and who sets them."""


@pytest.fixture(scope="module")
def asked_for(cluster, tmp_path_factory):
    """By name: a pod, and the release in whose namespace it is asked for."""
    ours = Release(cluster, "admission-updater")
    ours.install(CHART, "--values", CHART / "ci/test-key-values.yaml")
    beside = Release(cluster, "admission-application")
    beside.install(sidecar_chart.packed(tmp_path_factory.mktemp("consumer")))
    (updater,), (application,) = pods(ours.objects().values()), pods(beside.objects().values())
    (test,) = (each for each in ours.hooks() if each["kind"] == "Pod")
    return {"updater": (updater, ours), "test": (test, ours), "application": (application, beside)}


def containers(pod):
    return {
        each["name"]: each for kind in ("initContainers", "containers") for each in pod["spec"].get(kind, ())
    }


@pytest.mark.parametrize("name", ["updater", "test", "application"])
def test_pod_is_admitted_as_it_is(asked_for, name):
    pod, release = asked_for[name]
    answer = release.asked(pod)
    assert answer.status == CREATED, answer.message
    assert release.warnings == []


@pytest.mark.parametrize("field", TAKEN_OUT)
@pytest.mark.parametrize(("name", "container"), CONTAINERS, ids="-".join)
def test_pod_without_the_field_is_refused(asked_for, name, container, field):
    pod, release = asked_for[name]
    pod = copy.deepcopy(pod)
    said = [containers(pod)[container]["securityContext"], pod["spec"]["securityContext"]]
    assert any(field in each for each in said)
    for each in said:  # what the pod says holds for its containers, so it goes there too
        each.pop(field, None)
    answer = release.asked(pod)
    assert answer.status == FORBIDDEN
    assert REFUSED in answer.message
    assert TAKEN_OUT[field] in answer.message
    assert f'"{container}"' in answer.message


@pytest.mark.parametrize("name", TURNED)
def test_pod_that_wants_more_is_refused(asked_for, name):
    pod, release = asked_for["updater"]
    pod, (what, turn) = copy.deepcopy(pod), TURNED[name]
    turn(pod["spec"], pod["spec"]["containers"][0]["securityContext"])
    answer = release.asked(pod)
    assert answer.status == FORBIDDEN, answer.message
    assert REFUSED in answer.message
    assert what in answer.message
