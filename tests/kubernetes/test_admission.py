"""The API server refuses each of our pods if one field is absent that Pod Security's `restricted` demands.

The pods come from the cluster after `helm install`, with the API server's own defaults: the updater's pod, the pod of `helm
test`, and an application's pod with the sidecar. The tests create no pod. They ask with a dry run, which admission judges in
the same way.
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
"""Pod and container: ours, and the container of our tests' application, which the documentation shows as an example."""

TAKEN_OUT = {
    "allowPrivilegeEscalation": "allowPrivilegeEscalation != false",
    "capabilities": "unrestricted capabilities",
    "runAsNonRoot": "runAsNonRoot != true",
    "seccompProfile": "seccompProfile",
}
"""For each field: what admission says about its absence."""

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
"""For each field that a pod must not have, or not with this content: what admission says about it, and what sets it."""


@pytest.fixture(scope="module")
def asked_for(cluster, tmp_path_factory):
    """By name: a pod, and the release in whose namespace the tests ask for the pod."""
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
    for each in said:  # a field of the pod holds for its containers too, so the test removes both
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
