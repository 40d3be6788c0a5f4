"""Every file of values of both charts goes through a real cluster's API, and neither helm nor the API server remarks anything.

Installed, upgraded to a newer version of the chart with another label, rolled back, removed: by the real helm, in a
namespace of its own that enforces Pod Security's `restricted`. The pods that controllers would make of it are asked for too.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from kube import sidecar_chart
from kube.chart_tools import CHART, objects
from kube.cluster import CREATED, pods
from kube.release import Release

if TYPE_CHECKING:
    from pathlib import Path

OURS = sorted((CHART / "ci").glob("*-values.yaml"))
NEWER = "99.0.0"


@dataclass(frozen=True)
class Charts:
    """One of the two charts: as it is, as a later version, and a change of values that both know."""

    now: Path
    newer: Path
    change: tuple[str, ...]


@pytest.fixture(scope="session")
def charts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("charts")
    shutil.copytree(CHART, folder / "cacheupdater")
    sidecar_chart.packed(folder)
    for each in ("cacheupdater", "shop"):
        shutil.copytree(folder / each, folder / "newer" / each)
        for file in (folder / "newer" / each).rglob("Chart.yaml"):
            versions = re.compile(r"^((?:appV|v)ersion:) .*$", re.MULTILINE)
            file.write_text(versions.sub(rf'\1 "{NEWER}"', file.read_text()))
    labels = "--set-string=commonLabels.x=y,podLabels.x=y,podAnnotations.x=y"
    return {
        "cacheupdater": Charts(folder / "cacheupdater", folder / "newer/cacheupdater", (labels,)),
        "sidecar": Charts(
            folder / "shop", folder / "newer/shop", ("--set=cacheupdater-sidecar.logLevel=error",)
        ),
    }


def name_of(file):
    return file.name.removesuffix("-values.yaml")


def told_to_hold(stored):
    """What was asked for, of what the API server holds: it counts changes beside."""
    kept = ("kind", "spec", "data")
    return {
        name: {key: each[key] for key in kept if key in each}
        | {"labels": each["metadata"].get("labels"), "annotations": each["metadata"].get("annotations")}
        for name, each in stored.items()
    }


def life(release, charts, values):
    """From its installation to its end."""
    options = ("--values", values)
    before = release.objects()
    release.install(charts.now, *options)
    installed = release.objects()
    assert before.keys() < installed.keys()
    for each in [*pods(installed.values()), *release.hooks()]:
        answer = release.asked(each)
        assert answer.status == CREATED, answer.message

    release.upgrade(charts.newer, *options, *charts.change)
    upgraded = release.objects()
    assert upgraded.keys() == installed.keys()
    for name, each in upgraded.items():
        if each["kind"] in {"Deployment", "StatefulSet"}:
            assert each["spec"]["template"] != installed[name]["spec"]["template"]

    release.rollback(1)
    assert told_to_hold(release.objects()) == told_to_hold(installed)
    release.uninstall()
    assert release.objects().keys() == before.keys()
    assert release.warnings == []


@pytest.mark.parametrize("values", OURS, ids=name_of)
def test_release_lives_without_a_warning(cluster, charts, values):
    release = Release(cluster, f"cacheupdater-{name_of(values)}")
    if name_of(values) == "private-registry":  # names an account that exists
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "shop"}}
        cluster.must(account, release.namespace)
    life(release, charts["cacheupdater"], values)


@pytest.mark.parametrize("values", sidecar_chart.CASES, ids=name_of)
def test_an_applications_chart_with_the_sidecar_lives_without_a_warning(cluster, charts, values):
    life(Release(cluster, f"sidecar-{name_of(values)}"), charts["sidecar"], values)


def test_plain_manifest_is_taken_without_a_warning(cluster):
    namespace = cluster.namespace("plain")
    found = objects(sidecar_chart.PLAIN.read_text())
    for each in [*found, *pods(found)]:
        answer = cluster.make(each, namespace)
        assert answer.status == CREATED, answer.message
        assert answer.warnings == []


@pytest.mark.parametrize(
    "field", ["allowPrivilegeEscalation", "capabilities", "runAsNonRoot", "seccompProfile"]
)
def test_a_field_that_is_taken_out_of_the_values_is_warned_of(cluster, charts, field):
    release = Release(cluster, f"without-{field.lower()}")
    of_pod = [f"--set=podSecurityContext.{field}=null"] if field in {"runAsNonRoot", "seccompProfile"} else []
    options = ["--values", CHART / "ci/memory-values.yaml", f"--set=securityContext.{field}=null", *of_pod]
    release.install(charts["cacheupdater"].now, *options)
    assert field in " ".join(release.warnings)
    assert "would violate PodSecurity" in " ".join(release.warnings)


def test_a_field_that_kubernetes_does_not_know_is_warned_of(cluster, charts, tmp_path):
    values = tmp_path / "values.yaml"
    text = (CHART / "ci/memory-values.yaml").read_text()
    values.write_text(text + "extraVolumes: [{name: more, emptyDir: {sizeLimitt: 1Mi}}]\n")
    release = Release(cluster, "unknown-field")
    release.install(charts["cacheupdater"].now, "--values", values)
    (warning,) = release.warnings
    assert "unknown field" in warning
    assert "sizeLimitt" in warning
