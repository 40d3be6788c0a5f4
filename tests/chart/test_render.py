"""The objects that the chart renders from each file of values: they equal the golden files and are valid for Kubernetes.

The updater accepts the configuration in them. After an intended change, `REWRITE=1 make chart` rewrites the golden files;
review their diff.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from kube.chart_tools import (
    CHART,
    NEWEST,
    ROOT,
    VERSIONS,
    crds,
    fields,
    helm,
    misfits,
    objects,
    ran,
    rendered,
    template,
    told,
)

from cacheupdater import __version__
from cacheupdater.adapters.observer_prometheus.declared import DECLARED
from cacheupdater.cli import collect
from cacheupdater.config import load_config
from cacheupdater.service.difference import RESTART

CASES = sorted((CHART / "ci").glob("*-values.yaml"))
GOLDEN = Path(__file__).parent / "golden"
ENVIRON = {
    "REDIS_PASSWORD": "p",
    "DB_USER": "u",
    "DB_PASSWORD": "p",
    "HOSTNAME": "shop-0",
    "REDIS_URL": "redis://redis",
    "QUEUE_URL": "kafka://kafka:9092/hints",
    "HINTS_PASSWORD": "p",
    "DB_URL": "postgresql+asyncpg://db/shop",
}


def name_of(path):
    return path.name.removesuffix("-values.yaml")


def strict(schema):
    """The schema of a custom resource, in which an unknown field is a mistake. The API server would drop the field silently."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        made.setdefault("additionalProperties", bool(schema.get("x-kubernetes-preserve-unknown-fields")))
    return made


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_lint_finds_nothing(case):
    done = ran(helm(), "lint", "--strict", CHART, "--values", case, "--kube-version", NEWEST)
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_rendered_objects_equal_the_reviewed_golden_file(case):
    done = template("--values", case)
    assert done.returncode == 0, done.stderr
    golden = GOLDEN / f"{name_of(case)}.yaml"
    if os.environ.get("REWRITE"):  # noqa: TID251  set on the command line
        golden.write_text(done.stdout)
    assert done.stdout == golden.read_text()


def test_each_golden_file_has_its_values_and_there_are_twenty_at_least():
    assert {each.stem for each in GOLDEN.glob("*.yaml")} == set(map(name_of, CASES))
    assert len(CASES) >= 20


def test_every_object_is_valid_for_three_versions_of_kubernetes():
    found = [
        (golden.stem, each)
        for golden in sorted(GOLDEN.glob("*.yaml"))
        for each in objects(golden.read_text())
        if not each["apiVersion"].startswith(("keda.sh/", "monitoring.coreos.com/"))
    ]
    assert misfits(found) == []
    told(f"{len(found)} objects are valid for Kubernetes {', '.join(VERSIONS)}")


def test_a_misspelled_field_is_found():
    pod = next(each for each in rendered("--values", CASES[0]) if each["kind"] == "Pod")
    pod["spec"]["restartPolicyy"] = "Never"
    assert "restartPolicyy" in " ".join(misfits([("x", pod)]))


def custom():
    kinds = {each["spec"]["names"]["kind"]: each for each in crds()}
    for golden in sorted(GOLDEN.glob("*.yaml")):
        for each in objects(golden.read_text()):
            if each["kind"] in kinds:
                version = each["apiVersion"].split("/")[1]
                defined = next(
                    one for one in kinds[each["kind"]]["spec"]["versions"] if one["name"] == version
                )
                yield golden.stem, each, strict(defined["schema"]["openAPIV3Schema"])


def test_custom_objects_are_valid_by_their_definitions():
    seen = set()
    for case, each, schema in custom():
        seen.add(each["kind"])
        assert [e.message for e in jsonschema.Draft7Validator(schema).iter_errors(each)] == [], case
    assert seen == {"ScaledObject", "PodMonitor", "ServiceMonitor", "PrometheusRule"}


def test_a_number_where_keda_wants_text_is_found():
    _, each, schema = next(one for one in custom() if one[0] == "keda-lag")
    each["spec"]["triggers"][0]["metadata"]["lagThreshold"] = 200
    assert not jsonschema.Draft7Validator(schema).is_valid(each)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_updater_accepts_the_configuration(case, tmp_path):
    """The test reads the configuration from the ConfigMap, after Helm has read and written it."""
    for each in rendered("--values", case):
        text = each.get("data", {}).get("cacheupdater.yaml", "") if each["kind"] == "ConfigMap" else ""
        if text:
            (tmp_path / "token").write_text("t" * 32)
            file = tmp_path / "cacheupdater.yaml"
            file.write_text(text.replace("/run/secrets/cacheupdater/token", str(tmp_path / "token")))
            assert load_config(file, ENVIRON).admin.host_port == "0.0.0.0:9090"


def test_large_numbers_are_not_rewritten(tmp_path):
    values = tmp_path / "v.yaml"
    text = (CHART / "ci/memory-values.yaml").read_text()
    values.write_text(text.replace("table: products}", "table: products}, max_backlog: 1000000"))
    config = next(
        each
        for each in rendered("--values", values)
        if each["kind"] == "ConfigMap" and "cacheupdater.yaml" in each["data"]
    )
    assert "max_backlog: 1000000" in config["data"]["cacheupdater.yaml"]


RESTARTS = {
    "listen": "config.listen[0]=tcp://0.0.0.0:7272",
    "queue": "config.queue.partitions=2",
    "cache": "config.cache.url=redis://other",
    "admin.token_file": "config.admin.token_file=/run/secrets/cacheupdater/token",
    "state": "config.state=/var/lib/cacheupdater/learned",
    "fleet": "config.fleet=shops",
    "log_keys": "config.log_keys=full",
    "a new variable": "config.sources.main.url=postgresql+asyncpg://${OTHER_USER}@db/shop",
}
LIVE = ["config.sources.main.budget=700/s", "config.defaults.ttl=7m", "config.namespaces.product.ttl=7m"]


def test_each_setting_that_needs_a_restart_is_tried_here():
    assert RESTARTS.keys() - {"a new variable"} == set(RESTART.values()) - {"admin"}  # the chart sets `admin`


@pytest.mark.parametrize("said", [*RESTARTS.values(), *LIVE])
def test_pods_restart_only_for_what_a_running_updater_cannot_take_over(said):
    files, sums = set(), set()
    for more in ([], ["--set", said]):
        for each in rendered("--values", CHART / "ci/memory-values.yaml", *more):
            if each["kind"] == "ConfigMap":
                files.add(each["data"]["cacheupdater.yaml"])
            if each["kind"] == "Deployment":
                sums.add(each["spec"]["template"]["metadata"]["annotations"]["checksum/config"])
    assert len(files) == 2
    assert len(sums) == (1 if said in LIVE else 2)


@pytest.mark.parametrize(
    ("case", "ports"),
    [
        ("memory", [5432, 6379]),
        ("kafka", [5432, 6379, 9092]),
        ("tls-mutual", [5432, 6380, 9093]),
        ("sentinel", [5432, 6379, 26379]),
        ("python-loaders", [443, 6379]),
        ("existing-configmap", [5432, 6379, 9092]),
        ("addresses-by-variable", None),
        ("no-network-policy", None),
        ("collect", [9093]),
        ("collect-spill", [6379]),
        ("collect-from-secret", [9092]),
        ("both", [5432, 6379]),
    ],
)
def test_the_network_policy_allows_the_ports_that_the_configuration_names(case, ports):
    policies = [
        each
        for each in rendered("--values", CHART / f"ci/{case}-values.yaml")
        if each["kind"] == "NetworkPolicy"
    ]
    said = [
        sorted(each["port"] for rule in one["spec"]["egress"] if "to" not in rule for each in rule["ports"])
        for one in policies
    ]
    assert said == ([] if ports is None else [sorted([53, 53, *ports])])


def test_the_network_policy_allows_the_brokers_of_a_feed():
    feed = '{"debezium": {"url": "kafka://broker-1:9094,broker-2:9095", "prefix": "shop"}}'
    values = "--values", CHART / "ci/memory-values.yaml", f"--set-json=config.sources.main.changes={feed}"
    [policy] = [each for each in rendered(*values) if each["kind"] == "NetworkPolicy"]
    rules = policy["spec"]["egress"]
    assert {9094, 9095} <= {each["port"] for rule in rules for each in rule["ports"]}


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("memory", 'emit="tcp://shop-cacheupdater.shop:7171"'),
        ("memory", "helm --namespace shop test shop --logs"),
        ("kafka", "rollout status deployment/shop-cacheupdater"),
        ("statefulset", "Scaling in leaves the partitions"),
        ("addresses-by-variable", "No NetworkPolicy was made: the ports behind cache.url, queue.url"),
        ("existing-configmap", "nothing of it was checked"),
        ("collect", "collects hints. The next command:"),
        ("collect", 'emit="tcp://shop-cacheupdater.shop:7171"'),
        ("collect-spill", "Scaling in leaves the spill of the pods that go"),
    ],
)
def test_notes_name_the_next_two_commands(case, said, tmp_path):
    """The test renders the notes as an object, because `helm template` leaves notes out."""
    chart = tmp_path / "cacheupdater"
    subprocess.run(["cp", "-r", CHART, chart], check=True)
    (chart / "templates/notes.yaml").write_text(
        "kind: Notes\napiVersion: v1\nnotes: |\n"
        '  {{- include (print .Template.BasePath "/NOTES.txt") . | nindent 2 }}\n'
    )
    done = template("--values", CHART / f"ci/{case}-values.yaml", chart=chart)
    assert said in done.stdout, done.stderr


def kind_of(found, kind):
    return next(each for each in found if each["kind"] == kind)


FEEDS = CHART / "ci/feeds-values.yaml"


def feed_alerts(*more):
    groups = kind_of(rendered("--values", FEEDS, *more), "PrometheusRule")["spec"]["groups"]
    return {
        rule["alert"]: rule
        for group in groups
        if group["name"] == "cacheupdater-feeds"
        for rule in group["rules"]
    }


def test_the_alerts_for_feeds_ask_for_metrics_of_an_updater_and_of_this_release_alone():
    for rule in feed_alerts().values():
        asked = re.findall(r"cacheupdater_(\w+?)(?:_bucket)?\{([^}]*)\}", rule["expr"])
        assert asked
        for metric, labels in asked:
            assert DECLARED[metric].label_names[0] == "source"
            assert labels == 'namespace="shop",pod=~"shop-cacheupdater-.*"'


def test_a_lag_may_alert_at_bounds_to_which_the_metric_counts():
    allowed = json.loads((CHART / "values.schema.json").read_text())
    for name in ("metrics", "prometheusRule", "feeds", "lagSeconds"):
        allowed = allowed["properties"][name]
    assert set(allowed["enum"]) < set(DECLARED["feed_lag_seconds"].buckets[:-1])


def test_the_alerts_for_feeds_have_the_lag_and_the_labels_of_the_values_and_stand_without_others():
    assert feed_alerts()["CacheupdaterFeedLate"]["expr"].endswith(" > 0.5")
    alone = feed_alerts(
        "--set",
        "metrics.prometheusRule.groups=null",
        "--set",
        "metrics.prometheusRule.feeds.labels.severity=low",
    )
    assert {rule["labels"]["severity"] for rule in alone.values()} == {"low"}
    assert len(alone) == 3
    off = rendered("--values", FEEDS, "--set", "metrics.prometheusRule.feeds.enabled=false")
    assert len(kind_of(off, "PrometheusRule")["spec"]["groups"]) == 1


def collector_of(container):
    """What the command reads from the arguments. A wrong one would end the test."""
    parser = argparse.ArgumentParser()
    collect.add_to(parser.add_subparsers(), {})
    return parser.parse_args(container["args"])


@pytest.mark.parametrize("case", ["collect", "collect-spill", "collect-from-secret"])
def test_a_collector_gets_no_configuration_and_its_arguments_are_ones_that_it_takes(case):
    found = rendered("--values", CHART / f"ci/{case}-values.yaml")
    assert not {"ConfigMap", "Pod"} & {each["kind"] for each in found}
    workload = kind_of(found, "StatefulSet" if case == "collect-spill" else "Deployment")
    spec = workload["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert not any("configMap" in each for each in spec["volumes"] if each["name"] == "config")
    assert container["resources"]["limits"] == {"memory": "128Mi"}
    said = {each["name"]: each["value"] for each in container.get("env", ())}
    args = collector_of(container)
    assert (args.listen, args.admin) == (["tcp://0.0.0.0:7171"], "0.0.0.0:9090")
    assert (case == "collect-from-secret") == ("CACHEUPDATER_QUEUE" not in said)


@pytest.mark.parametrize("case", ["collect", "collect-spill", "collect-from-secret"])
def test_a_spill_is_a_directory_within_its_volume_and_without_one_there_is_no_volume(case):
    found = rendered("--values", CHART / f"ci/{case}-values.yaml")
    spec = kind_of(found, "StatefulSet" if case == "collect-spill" else "Deployment")["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    spill = collector_of(container).spill
    assert (mounts.get("state"), spill) == (
        (None, None) if case == "collect" else ("/var/lib/cacheupdater", "/var/lib/cacheupdater/spill")
    )
    kept = [each["metadata"]["name"] for each in spec.get("volumeClaimTemplates", ())]
    lent = [each["name"] for each in spec["template"]["spec"]["volumes"] if each["name"] == "state"]
    assert (kept, lent) == {
        "collect": ([], []),
        "collect-spill": (["state"], []),
        "collect-from-secret": ([], ["state"]),
    }[case]


@pytest.mark.parametrize("case", ["collect", "both"])
def test_the_service_leads_hints_to_the_pods_that_collect(case):
    found = rendered("--values", CHART / f"ci/{case}-values.yaml")
    service, template = kind_of(found, "Service")["spec"], kind_of(found, "Deployment")["spec"]["template"]
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    (hints,) = [each for each in service["ports"] if each["targetPort"] == "hints"]
    (port,) = [each for each in template["spec"]["containers"][0]["ports"] if each["name"] == "hints"]
    assert (hints["port"], port["containerPort"]) == (7171, 7171)


def test_schema_and_readme_are_generated_from_the_values():
    code = "import document, json; print(json.dumps([document.schema(), document.readme()]))"
    done = ran(sys.executable, "-c", code, environ={"PYTHONPATH": str(ROOT / "charts")})
    assert done.returncode == 0, done.stderr
    schema, page = json.loads(done.stdout)
    why = "run: make chart-docs"
    assert schema == json.loads((CHART / "values.schema.json").read_text()), why
    assert page == (CHART / "README.md").read_text(), why


def test_the_fields_that_the_schema_knows_are_those_of_kubernetes():
    """A new field of Kubernetes would be refused, and a removed one let through."""
    properties = json.loads((CHART / "values.schema.json").read_text())["properties"]
    kinds = {
        "podSecurityContext": "podsecuritycontext-v1",
        "securityContext": "securitycontext-v1",
        "livenessProbe": "probe-v1",
        "affinity": "affinity-v1",
        "updateStrategy": "deploymentstrategy-apps-v1",
    }
    ours = {kind: sorted(properties[name]["properties"]) for name, kind in kinds.items()}
    assert ours == fields(*kinds.values())


def test_both_charts_have_the_same_text_of_what_both_refuse():
    shared = "templates/_shared.tpl"
    of_the_library = ROOT / "charts/cacheupdater-sidecar" / shared
    assert of_the_library.read_text() == (CHART / shared).read_text(), "run: make chart-docs"


def test_the_chart_installs_this_version():
    assert f'appVersion: "{__version__}"' in (CHART / "Chart.yaml").read_text()


def of_the_page():
    page = (ROOT / "docs/how-to/helm.md").read_text()
    return [text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if text.startswith("# ")]


def test_the_values_on_the_page_work(tmp_path):
    assert len(of_the_page()) == 4
    for text in of_the_page():
        values = tmp_path / "values.yaml"
        values.write_text(text)
        kinds = {"Service", "Deployment"} | ({"ConfigMap"} if "\nconfig:" in text else set())
        assert kinds <= {each["kind"] for each in rendered("--values", values)}


def test_the_page_quotes_the_refusal_of_two_pods(tmp_path):
    (tmp_path / "values.yaml").write_text(of_the_page()[0])
    done = template("--values", tmp_path / "values.yaml", "--set", "replicaCount=2")
    page = (ROOT / "docs/how-to/helm.md").read_text()
    assert [line for line in done.stderr.splitlines() if line.startswith("  - ")] == [
        line for line in page.splitlines() if line.startswith("  - replicaCount")
    ]


def test_the_pod_of_helm_test_may_send_its_hint_and_stays_until_its_log_is_read():
    found = rendered("--values", CHART / "ci/network-policy-values.yaml")
    policy = next(each for each in found if each["kind"] == "NetworkPolicy")
    test = next(each for each in found if each["kind"] == "Pod")
    let_in = next(rule for rule in policy["spec"]["ingress"] if rule["ports"] == [{"port": 7171}])["from"]
    assert any(
        each["podSelector"]["matchLabels"].items() <= test["metadata"]["labels"].items() for each in let_in
    )
    assert test["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation"
