"""The library chart in the pod of an application, rendered by the real helm: golden files, schemas and refusals."""

from __future__ import annotations

import argparse
from copy import deepcopy
from difflib import unified_diff

import pytest
from kube.chart_tools import NEWEST, VERSIONS, misfits
from kube.sidecar_chart import (
    CASES,
    CHART,
    HOME,
    PLAIN,
    configuration,
    objects,
    packed,
    pod,
    render,
    run,
    sidecar,
    template,
)
from ruamel.yaml import YAML

from cacheupdater.cli import collect
from cacheupdater.config import load_config

PREFIX = "cacheupdater-sidecar."


@pytest.fixture(scope="module")
def chart(tmp_path_factory):
    return packed(tmp_path_factory.mktemp("consumer"))


def read(text):
    return YAML(typ="safe", pure=True).load(text)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_each_feature_renders_as_its_golden_file_says(chart, case):
    golden = HOME / "golden" / case.name.replace("-values", "")
    found = render(chart, "--values", case)
    changed = "\n".join(unified_diff(golden.read_text().splitlines(), found.splitlines(), lineterm=""))
    assert not changed, (
        f"{changed}\nto accept: PYTHONPATH=tests/support .venv/bin/python -m kube.sidecar_chart"
    )


def test_each_golden_file_belongs_to_a_file_of_values():
    assert {each.stem for each in (HOME / "golden").iterdir()} == {
        each.stem.removesuffix("-values") for each in CASES
    }


def test_both_charts_pass_a_strict_lint(chart):
    done = run("lint", "--strict", "--kube-version", NEWEST, CHART, chart)
    assert done.returncode == 0, done.stdout


def test_each_object_fits_the_schema_of_its_kind_and_has_no_unknown_field(chart):
    manifests = {case.stem: render(chart, "--values", case) for case in CASES} | {"plain": PLAIN.read_text()}
    named = [(name, each) for name, text in manifests.items() for each in objects(text).values()]
    assert misfits(named) == []
    broken = deepcopy(objects(manifests["plain"])["Deployment"])
    broken["spec"]["template"]["spec"]["initContainers"][0]["restartPolicyy"] = "Always"
    assert "restartPolicyy" in " ".join(misfits([("broken", broken)]))


def beyond_restricted(container):
    """The fields of a container that Pod Security's profile `restricted` would refuse; we demand a read-only root too."""
    security = container.get("securityContext", {})
    wanted = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {name for name, value in wanted.items() if security.get(name) != value}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_sidecar_has_all_security_fields_whatever_the_values_say(chart, case):
    container = sidecar(render(chart, "--values", case))
    assert not beyond_restricted(container)
    assert container["securityContext"]["runAsUser"] > 0
    for name in container["securityContext"]:
        if name not in {"runAsUser", "runAsGroup"}:
            less = {key: value for key, value in container["securityContext"].items() if key != name}
            assert beyond_restricted({"securityContext": less}) == {name}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_sidecar_never_makes_its_pod_wait_or_leave_its_service(chart, case):
    container = sidecar(render(chart, "--values", case))
    assert container["restartPolicy"] == "Always"
    assert not {"readinessProbe", "startupProbe", "lifecycle"} & container.keys()
    probe = container.get("livenessProbe")
    if probe:
        assert probe["httpGet"]["path"] == "/livez"  # this page depends on no server
        assert probe["periodSeconds"] * probe["failureThreshold"] >= 180
    assert (
        "ephemeral-storage" not in container["resources"]["limits"]
    )  # if a container exceeds this limit, Kubernetes evicts the whole pod


def test_applications_container_gets_the_socket_and_cannot_write_into_its_folder(chart):
    spec = pod(render(chart))
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert mount == {"name": "cacheupdater-run", "mountPath": "/run/cacheupdater", "readOnly": True}
    (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Mi"}
    assert spec["securityContext"]["fsGroup"] == 65532


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_rendered_configuration_is_one_that_a_sidecar_may_run_with(chart, case, tmp_path):
    manifest = render(chart, "--values", case)
    if "ConfigMap" not in objects(manifest):
        assert "config: null" in case.read_text()
        return
    file = tmp_path / "cacheupdater.yaml"
    file.write_text(configuration(manifest).replace("/tls/token", str(tmp_path / "token")))
    (tmp_path / "token").write_text("a-token-that-nobody-guesses-0123456789\n")
    config = load_config(file, {"SHOP_DB": "postgresql+asyncpg://shop@db/shop"})
    assert config.fleet in {"shop", "in-web-shop"}
    assert "unix:///run/cacheupdater/hints.sock" in map(str, config.listen)
    assert not config.warnings


@pytest.mark.parametrize(
    ("said", "restarts"),
    [
        ("fleet=other", True),
        ("config.cache.url=redis://other", True),
        ("config.sources.shop.url=postgresql+asyncpg://${OTHER}@db/shop", True),
        ("config.sources.shop.budget=700/s", False),
        ("config.defaults.ttl=7m", False),
    ],
)
def test_pods_are_rolled_out_only_for_what_a_running_sidecar_cannot_take_over(chart, said, restarts):
    def rendered(*options):
        found = objects(render(chart, *options))
        template = found["Deployment"]["spec"]["template"]
        return template["metadata"]["annotations"]["checksum/cacheupdater"], found["ConfigMap"]["data"]

    (before, file), (after, changed) = rendered(), rendered("--set", f"{PREFIX}{said}")
    assert changed != file
    assert (after != before) is restarts


@pytest.mark.parametrize("case", ["collect", "collect-spill"])
def test_sidecar_that_collects_has_no_configuration_and_arguments_that_a_collector_takes(chart, case):
    manifest = render(chart, "--values", HOME / f"consumer/ci/{case}-values.yaml")
    assert "ConfigMap" not in objects(manifest)
    container = sidecar(manifest)
    parser = argparse.ArgumentParser()
    collect.add_to(parser.add_subparsers(), {})
    said = parser.parse_args(container["args"])
    assert (said.listen, said.admin) == (["unix:///run/cacheupdater/hints.sock"], "0.0.0.0:9090")
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts.keys() == {each["name"] for each in pod(manifest)["volumes"]}
    assert "cacheupdater-config" not in mounts
    folder = mounts.get("cacheupdater-state")
    assert said.spill == (f"{folder}/spill" if case == "collect-spill" else None)
    assert container["resources"]["limits"] == {"memory": "128Mi"}


def test_plain_manifest_is_what_the_include_renders(chart):
    plain, rendered = (
        objects(PLAIN.read_text()),
        objects(render(chart, "--set", f"{PREFIX}fleet=shop")),
    )
    texts = [each["ConfigMap"]["data"].pop("cacheupdater.yaml") for each in (plain, rendered)]
    assert read(texts[0]) == read(texts[1])
    del rendered["ConfigMap"]["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    del rendered["Deployment"]["spec"]["template"]["metadata"]["annotations"]  # helm computes the checksum
    assert plain == rendered


COLLECTS = ["role=collect", "config=null"]
REFUSED = [
    (
        ["config.fleet="],
        "config.fleet is empty, and each of N sidecars would spend every budget and quota whole",
    ),
    (["config.fleet=a", "fleet=b"], "fleet is said twice"),
    (
        ["config.queue.url=kafka://k:9092/hints"],
        "config.queue.url is kafka://…, and a sidecar takes",
    ),
    (
        ["config.listen={tcp://127.0.0.1:7171}"],
        "config.listen leaves out unix:///run/cacheupdater/hints.sock",
    ),
    (["config.admin.listen=127.0.0.1:9090"], "where the kubelet's probe cannot ask; write 0.0.0.0:9090"),
    (
        ["config.namespaces.product.load.source=nope"],
        'config.namespaces.product.load.source: no source is called "nope"; use one of shop, or write it into config.sources',
    ),
    (["config.admin.listen=0.0.0.0:9464"], "config.admin.listen is 0.0.0.0:9464"),
    (["existingConfigMap=mine"], "config and existingConfigMap are both said"),
    (["config=null"], "config is empty; write what is to be kept fresh"),
    (["fleet=1st"], "fleet"),
    (["livenesProbe.periodSeconds=5"], "livenesProbe"),
    (["livenessProbe.exec.command={true}"], "exec"),
    (["port=80"], "at '/port'"),
    (["role=collect"], "a collector reads no configuration and has no budget to share"),
    (["collect.queue=kafka://k:9092/hints"], "collect is for a collector; set role: collect"),
    ([*COLLECTS, "collect.queue=memory://"], "collect.queue is memory://…, which updaters in other pods"),
    ([*COLLECTS, "collect.queue=redis://:pw@q/0?stream=hints"], "collect.queue: holds a password"),
    ([*COLLECTS, "collect.queue=redis://:${P}@q/0?stream=hints"], "write $(NAME) instead of ${NAME}"),
    ([*COLLECTS, "existingSecret="], "collect.queue says nothing; write where hints go"),
    ([*COLLECTS, "fleet=shop"], "a collector reads no configuration and has no budget to share"),
    (["role=both"], "at '/role': value must be one of 'update', 'collect'"),
    (["runAsUser=0"], "runAsUser"),
    (["image.digest=latest"], "digest"),
    (["logLevel=loud"], "logLevel"),
    (["readinessProbe.periodSeconds=5"], "readinessProbe"),
    (["securityContext.privileged=true"], "securityContext"),
]


@pytest.mark.parametrize(("values", "sentence"), REFUSED, ids=lambda each: str(each)[:40])
def test_wrong_values_are_refused_with_the_sentence_that_mends_them(chart, values, sentence):
    options = [option for each in values for option in ("--set", PREFIX + each)]
    done = template(chart, *options)
    assert done.returncode != 0
    assert sentence in done.stderr


@pytest.mark.parametrize("version", ["1.28.0", "v1.28.9-gke.1", "1.20.0"])
def test_a_kubernetes_that_does_not_know_sidecars_is_refused(chart, version):
    """By the template, because Helm does not ask a dependency for its kubeVersion."""
    done = template(chart, "--kube-version", version)
    assert done.returncode != 0
    number = version.removeprefix("v").partition("-")[0]
    assert (
        f"Kubernetes v{number} would wait for the sidecar's end before it starts the application"
        in done.stderr
    )
    assert "use 1.29 or newer" in done.stderr


@pytest.mark.parametrize("version", [*VERSIONS, "v1.29.0-eks-1234567"])
def test_each_kubernetes_that_knows_sidecars_gets_the_same_objects(chart, version):
    assert render(chart, "--kube-version", version) == render(chart)
