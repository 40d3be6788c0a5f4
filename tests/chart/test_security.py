"""The pods have all security fields that the chart promises. Each absence is found, and each finding of a policy scan has an answer."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from kube.chart_tools import CHART, objects, pods, python, rendered, told
from ruamel.yaml import YAML

MEMORY = CHART / "ci/memory-values.yaml"
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.yaml"))
ANSWERS = YAML(typ="safe").load((Path(__file__).parent / "policy-answers.yaml").read_text())

OF_THE_POD = {
    "podSecurityContext.runAsNonRoot": ("securityContext.runAsNonRoot", True),
    "podSecurityContext.runAsUser": ("securityContext.runAsUser", 65532),
    "podSecurityContext.runAsGroup": ("securityContext.runAsGroup", 65532),
    "podSecurityContext.fsGroup": ("securityContext.fsGroup", 65532),
    "podSecurityContext.fsGroupChangePolicy": ("securityContext.fsGroupChangePolicy", "OnRootMismatch"),
    "podSecurityContext.seccompProfile": ("securityContext.seccompProfile.type", "RuntimeDefault"),
}
OF_A_CONTAINER = {
    "securityContext.allowPrivilegeEscalation": ("securityContext.allowPrivilegeEscalation", False),
    "securityContext.capabilities": ("securityContext.capabilities.drop", ["ALL"]),
    "securityContext.privileged": ("securityContext.privileged", False),
    "securityContext.readOnlyRootFilesystem": ("securityContext.readOnlyRootFilesystem", True),
    "securityContext.runAsNonRoot": ("securityContext.runAsNonRoot", True),
    "securityContext.runAsUser": ("securityContext.runAsUser", 65532),
    "securityContext.runAsGroup": ("securityContext.runAsGroup", 65532),
    "securityContext.seccompProfile": ("securityContext.seccompProfile.type", "RuntimeDefault"),
    "resources.limits.memory": ("resources.limits.memory", None),
    "resources.requests.cpu": ("resources.requests.cpu", None),
    "resources.requests.memory": ("resources.requests.memory", None),
}
"""For each value of the chart: the field of the pod or container that it sets, and the expected content (None: any)."""
ALWAYS = {"automountServiceAccountToken": False, "enableServiceLinks": False}
VOLUMES = {
    "configMap",
    "emptyDir",
    "projected",
    "secret",
    "downwardAPI",
    "ephemeral",
    "persistentVolumeClaim",
}
HOST = {"hostNetwork", "hostPID", "hostIPC"}


def at(tree, path):
    for name in path.split("."):
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def faults(pod):
    """The paths of the fields of a pod that are absent or less secure than promised."""
    ours = [each for each in pod["containers"] if each["name"] in {"cacheupdater", "test"}]
    wanted = [(pod, path, value) for path, value in [*OF_THE_POD.values(), *ALWAYS.items()]]
    wanted += [(one, path, value) for one in ours for path, value in OF_A_CONTAINER.values()]
    found = {
        path for tree, path, value in wanted if at(tree, path) is None or value not in (None, at(tree, path))
    }
    found |= HOST & pod.keys()
    found |= {f"volumes.{kind}" for each in pod["volumes"] for kind in each.keys() - {"name"} - VOLUMES}
    return found


def test_every_pod_of_every_file_of_values_has_all_security_fields():
    checked = [(file.stem, faults(pod)) for file in GOLDEN for pod in pods(objects(file.read_text()))]
    alone = [file for file in GOLDEN if file.stem.startswith("collect")]  # their releases have no test's pod
    assert len(checked) >= 2 * len(GOLDEN) - 2 - len(alone)
    assert [each for each in checked if each[1]] == []


@pytest.mark.parametrize("value", [*OF_THE_POD, *OF_A_CONTAINER])
def test_the_absence_of_each_field_is_found(value):
    path, _ = (OF_THE_POD | OF_A_CONTAINER)[value]
    for pod in pods(rendered("--values", MEMORY, f"--set={value}=null")):
        assert faults(pod) == {path}


@pytest.mark.parametrize("field", [*ALWAYS, *sorted(HOST), "hostPath"])
def test_the_absence_of_a_field_that_no_value_changes_is_found_too(field):
    pod = pods(rendered("--values", MEMORY))[0]
    if field in ALWAYS:
        del pod[field]
    elif field in HOST:
        pod[field] = True
    else:
        pod["volumes"].append({"name": "x", "hostPath": {"path": "/"}})
    assert faults(pod) == {"volumes.hostPath" if field == "hostPath" else field}


def test_no_account_has_a_token_and_nothing_has_rights():
    for file in GOLDEN:
        for each in objects(file.read_text()):
            assert "rbac" not in each["apiVersion"]
            if each["kind"] == "ServiceAccount":
                assert each["automountServiceAccountToken"] is False


def test_each_finding_of_a_policy_scan_has_an_answer(tmp_path):
    for file in GOLDEN:
        (tmp_path / file.name).write_text(file.read_text())
    scan = [python().parent / "checkov", "--framework", "kubernetes", "--skip-download", "--compact"]
    done = subprocess.run(
        [*scan, "--quiet", "--output", "json", "--directory", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    found = {each["check_id"]: each for each in report["results"]["failed_checks"]}
    passed = report["summary"]["passed"]
    told(f"checkov: {passed} checks passed; answered: {', '.join(sorted(found))}")
    assert passed > 1000
    unanswered = [
        f"{each['check_id']} {each['check_name']}: {each['resource']} in {each['file_path']}"
        for each in report["results"]["failed_checks"]
        if not re.fullmatch(ANSWERS.get(each["check_id"], {}).get("of", ""), each["resource"])
    ]
    assert unanswered == []
    assert ANSWERS.keys() == found.keys(), "policy-answers.yaml has an answer without a finding"
