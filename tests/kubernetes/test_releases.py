"""A release with every file of values of both charts, in a real API server: neither helm nor the API server warns.

The real helm installs each release, upgrades it to a newer version of the chart with another label, rolls it back and
removes it. Each release has its own namespace, which enforces Pod Security's `restricted`. The tests also ask for the pods
that controllers would create.
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
    """One of the two charts: the present version, a later version, and a change of values that both versions know."""

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
    """The part of the stored objects that helm asked for. The API server adds counters of its own."""
    kept = ("kind", "spec", "data")
    return {
        name: {key: each[key] for key in kept if key in each}
        | {"labels": each["metadata"].get("labels"), "annotations": each["metadata"].get("annotations")}
        for name, each in stored.items()
    }


def life(release, charts, values):
    """The life of a release, from its installation to its removal."""
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
    if name_of(values) == "private-registry":  # these values name an account that must exist
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "shop"}}
        cluster.must(account, release.namespace)
    life(release, charts["cacheupdater"], values)


@pytest.mark.parametrize("values", sidecar_chart.CASES, ids=name_of)
def test_an_applications_chart_with_the_sidecar_lives_without_a_warning(cluster, charts, values):
    life(Release(cluster, f"sidecar-{name_of(values)}"), charts["sidecar"], values)


def test_plain_manifest_is_accepted_without_a_warning(cluster):
    namespace = cluster.namespace("plain")
    found = objects(sidecar_chart.PLAIN.read_text())
    for each in [*found, *pods(found)]:
        answer = cluster.make(each, namespace)
        assert answer.status == CREATED, answer.message
        assert answer.warnings == []


@pytest.mark.parametrize(
    "field", ["allowPrivilegeEscalation", "capabilities", "runAsNonRoot", "seccompProfile"]
)
def test_the_api_server_warns_of_a_security_field_without_a_value(cluster, charts, field):
    release = Release(cluster, f"without-{field.lower()}")
    of_pod = [f"--set=podSecurityContext.{field}=null"] if field in {"runAsNonRoot", "seccompProfile"} else []
    options = ["--values", CHART / "ci/memory-values.yaml", f"--set=securityContext.{field}=null", *of_pod]
    release.install(charts["cacheupdater"].now, *options)
    assert field in " ".join(release.warnings)
    assert "would violate PodSecurity" in " ".join(release.warnings)


def test_the_api_server_warns_of_an_unknown_field(cluster, charts, tmp_path):
    values = tmp_path / "values.yaml"
    text = (CHART / "ci/memory-values.yaml").read_text()
    values.write_text(text + "extraVolumes: [{name: more, emptyDir: {sizeLimitt: 1Mi}}]\n")
    release = Release(cluster, "unknown-field")
    release.install(charts["cacheupdater"].now, "--values", values)
    (warning,) = release.warnings
    assert "unknown field" in warning
    assert "sizeLimitt" in warning
