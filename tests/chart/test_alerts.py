"""The chart's alerts: each asks for metrics that exist, speaks when it should and not before, and leads to what to do.

Prometheus' own `promtool` judges the expressions and plays their stories. Without it, the tests that need it are skipped. The
names of metrics and labels are compared without it.
"""

import re
from io import StringIO

import pytest
from kube.chart_tools import CHART, ROOT, promtool, ran, rendered
from ruamel.yaml import YAML

from cacheupdater.adapters.observer_prometheus.declared import COLLECTOR, DECLARED
from cacheupdater.core.events import EVENTS

ON_CALL, FEEDS, COLLECT = (CHART / f"ci/{name}-values.yaml" for name in ("on-call", "feeds", "collect"))
PAGE = ROOT / "docs/how-to/on-call.md"
OWN = {"namespace", "pod"}  # of Prometheus: whom it has asked
BUILD = {"version", "python"}
SERIES = 'namespace="shop",pod="shop-cacheupdater-1"'
METRIC = re.compile(r"\bcacheupdater_(\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"')
TOLD_LABEL = re.compile(r"\$labels\.(\w+)")
SUFFIXES = {"counter": "_total", "histogram": "_bucket", "gauge": ""}


def alerts(values, *more):
    """The chart's own alerts, by name."""
    (rule,) = [each for each in rendered("--values", values, *more) if each["kind"] == "PrometheusRule"]
    return {
        each["alert"]: each
        for group in rule["spec"]["groups"]
        if group["name"].startswith("cacheupdater-")
        for each in group["rules"]
    }


def on_call(*more):
    return alerts(ON_CALL, *more)


def of_a_collector():
    return alerts(COLLECT, "--set=metrics.prometheusRule.onCall.enabled=true")


def mistakes(expression, declared):
    """What an expression asks for that no process with these metrics has: a metric, a label, or a value of a label."""
    known = {f"{name}{SUFFIXES[row.kind]}": row for name, row in declared.items()}
    found = []
    for name, matchers in METRIC.findall(expression):
        row = known.get(name)
        if row is None and name != "build_info":
            found.append(name)
            continue
        labels = {*OWN, *(row.label_names if row else BUILD)}
        for label, values in MATCHER.findall(matchers):
            allowed = {**EVENTS, **(row.reasons if row else {})}
            if label not in labels:
                found.append(f"{name}: {label}")
            elif label not in OWN:
                found += [f"{name}: {each}" for each in values.split("|") if each not in allowed]
    return found


@pytest.mark.parametrize("values", [ON_CALL, FEEDS], ids=lambda each: each.name)
def test_an_alert_asks_only_for_what_an_updater_has_and_for_this_release_alone(values):
    made = alerts(values)
    assert made
    for rule in made.values():
        asked = METRIC.findall(rule["expr"])
        assert asked
        assert mistakes(rule["expr"], DECLARED) == []
        assert all(said.startswith('namespace="shop",pod=~"shop-cacheupdater-.*"') for _, said in asked)


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("min(cacheupdater_sorce_up) == 0", "sorce_up"),
        ("sum(cacheupdater_lost_packs) > 0", "lost_packs"),
        ("sum(cacheupdater_quarantined_total) > 0", "quarantined_total"),
        ('sum(cacheupdater_quarantined{reason="x"}) > 0', "quarantined: reason"),
        ('sum(cacheupdater_troubles{event=~"redis_down|load_faild"}) > 0', "troubles: load_faild"),
        ('rate(cacheupdater_dropped_total{reason="quarantine"}[5m]) > 0', "dropped_total: quarantine"),
    ],
)
def test_a_wrong_name_in_an_expression_is_found(expression, wrong):
    assert mistakes(expression, DECLARED) == [wrong]


def test_a_collector_has_the_alerts_that_can_speak_there_and_no_others():
    mute = {name for name, each in on_call().items() if mistakes(each["expr"], COLLECTOR)}
    assert mute == {
        "CacheupdaterSourceDown",
        "CacheupdaterHintsWait",
        "CacheupdaterQuarantine",
        "CacheupdaterHintsLost",
        "CacheupdaterPaused",
    }
    assert of_a_collector().keys() == on_call().keys() - mute


def test_a_sentence_names_only_labels_that_the_expression_keeps():
    for rule in {**on_call(), **alerts(FEEDS)}.values():
        kept = {each for said in re.findall(r"by \(([^)]*)\)", rule["expr"]) for each in said.split(", ")}
        assert {each for said in rule["annotations"].values() for each in TOLD_LABEL.findall(said)} <= kept


def anchors():
    """The headings of the page, as GitHub links to them."""
    headings = re.findall(r"^#+ (.*)$", PAGE.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


def test_each_alert_has_a_reason_and_a_severity_and_leads_to_a_section_that_exists():
    for name, rule in on_call().items():
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}, name
        page, _, section = rule["annotations"]["runbook_url"].partition("#")
        assert page.endswith(f"/{PAGE.relative_to(ROOT)}")
        assert section in anchors(), name
    assert {rule["labels"]["severity"] for rule in on_call().values()} == {"page", "warning"}


def test_the_page_lists_each_alert_with_its_severity_and_its_section():
    rows = re.findall(
        r"^\| `(Cacheupdater\w+)` \| (\w+) \| .* \| \[.*\]\(#(.*)\) \|$", PAGE.read_text(), re.MULTILINE
    )
    defaults = on_call("--set=metrics.prometheusRule.onCall.critical.severity=critical")
    assert rows == [
        (name, rule["labels"]["severity"], rule["annotations"]["runbook_url"].partition("#")[2])
        for name, rule in defaults.items()
    ]


def test_a_trouble_has_an_alert_of_its_own_or_alerts_when_it_lasts_unless_it_ends_by_itself():
    rules = on_call()
    apart = set(re.search(r'event!~"(.*?)"', rules["CacheupdaterTrouble"]["expr"])[1].split("|"))
    own = set(re.search(r'event=~"(.*?)"', rules["CacheupdaterNotReady"]["expr"])[1].split("|"))
    by_another_metric = {"load_failed", "quarantined", "lost", "rejected", "paused"}
    assert apart - own - by_another_metric == {"prolonged", "form_changed", "feed_swept"}
    assert own | by_another_metric <= apart


def judged(folder, rules, *stories):
    """promtool's answer about these rules, or about the stories that are played with them."""
    file, tests = folder / "rules.yaml", folder / "tests.yaml"
    for path, said in (
        (file, {"groups": [{"name": "all", "rules": rules}]}),
        (tests, {"rule_files": [str(file)], "evaluation_interval": "30s", "tests": list(stories)}),
    ):
        text = StringIO()
        YAML().dump(said, text)
        path.write_text(text.getvalue())
    command = ["test", "rules", tests] if stories else ["check", "rules", file]
    return ran(promtool(), *command)


@pytest.mark.parametrize("values", [ON_CALL, FEEDS], ids=lambda each: each.name)
def test_prometheus_reads_each_expression_and_each_sentence(values, tmp_path):
    rules = list(alerts(values).values())
    done = judged(tmp_path, rules)
    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout


# for each story: the alert, the series of an updater (a value every 30 s), when the alert is silent, when it speaks, its labels
STORIES = {
    "no pod is left": (
        "CacheupdaterAway",
        {f"build_info{{{SERIES}}}": "1x20 stale _x60"},
        ("10m", "16m"),
        {"namespace": "shop"},
    ),
    "Redis is away": (
        "CacheupdaterNotReady",
        {f'troubles{{{SERIES},event="redis_down"}}': "0x10 1x40"},
        ("9m", "11m"),
        {"event": "redis_down"},
    ),
    "one of two pods does not reach the source": (
        "CacheupdaterSourceDown",
        {
            f'source_up{{{SERIES},source="main"}}': "1x50",
            'source_up{namespace="shop",pod="shop-cacheupdater-2",source="main"}': "1x10 0x40",
        },
        ("9m", "11m"),
        {"source": "main"},
    ),
    "a unit hangs": (
        "CacheupdaterHintsWait",
        {f'oldest_open_seconds{{{SERIES},partition="0"}}': "0+30x60"},
        ("6m", "8m"),
        {"pod": "shop-cacheupdater-1"},
    ),
    "readers ask for a key in quarantine": (
        "CacheupdaterQuarantine",
        {
            f'quarantined{{{SERIES},partition="0"}}': "0x10 1x60",
            f'dropped_total{{{SERIES},exported_namespace="product",reason="quarantined"}}': "0x10 0+1x60",
        },
        ("14m", "17m"),
        {},
    ),
    "one pack is lost": (
        "CacheupdaterHintsLost",
        {f'lost_packs_total{{{SERIES},reason="retention"}}': "0x10 1x60"},
        ("4m", "7m"),
        {"reason": "retention"},
    ),
    "packs are refused all the time": (
        "CacheupdaterHintsRejected",
        {f'intake_rejected_total{{{SERIES},reason="unknown_version"}}': "0x10 0+1x60"},
        ("14m", "17m"),
        {"reason": "unknown_version"},
    ),
    "a reload was refused": (
        "CacheupdaterTrouble",
        {f'troubles{{{SERIES},event="reload_refused"}}': "0x10 1x60"},
        ("19m", "21m"),
        {"event": "reload_refused"},
    ),
    "a pause is forgotten": (
        "CacheupdaterPaused",
        {f'paused{{{SERIES},exported_namespace="product"}}': "0x10 1x1600"},
        ("12h", "12h10m"),
        {"exported_namespace": "product"},
    ),
}


# for each story: an alert that never speaks in it, and the series
SILENT = {
    "Redis is started again": (
        "CacheupdaterNotReady",
        {f'troubles{{{SERIES},event="redis_down"}}': "0x10 1x6 0x40"},
    ),
    "a key that nobody reads is in quarantine": (
        "CacheupdaterQuarantine",
        {
            f'quarantined{{{SERIES},partition="0"}}': "1x60",
            f'dropped_total{{{SERIES},exported_namespace="product",reason="quarantined"}}': "7x60",
        },
    ),
    "a port scanner has come by": (
        "CacheupdaterHintsRejected",
        {f'intake_rejected_total{{{SERIES},reason="cut_short"}}': "0x10 3x50"},
    ),
    "a source is down, and fail_safe keeps its values": (
        "CacheupdaterTrouble",
        {
            f'troubles{{{SERIES},event="load_failed"}}': "1x60",
            f'troubles{{{SERIES},event="prolonged"}}': "1x60",
        },
    ),
    "another release has a trouble": (
        "CacheupdaterTrouble",
        {'troubles{namespace="shop",pod="basket-cacheupdater-1",event="no_hint"}': "1x60"},
    ),
}


def played(folder, name, series, expected):
    """`expected`: for each time, the labels of the alert that speaks then, or None. Annotations are judged elsewhere."""
    rule = {key: value for key, value in on_call()[name].items() if key != "annotations"}
    story = {
        "interval": "30s",
        "input_series": [
            {"series": f"cacheupdater_{each}", "values": values} for each, values in series.items()
        ],
        "alert_rule_test": [
            {
                "eval_time": at,
                "alertname": name,
                "exp_alerts": [] if labels is None else [{"exp_labels": {**rule["labels"], **labels}}],
            }
            for at, labels in expected.items()
        ],
    }
    done = judged(folder, [rule], story)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("story", STORIES)
def test_an_alert_speaks_after_its_cause_has_lasted_and_not_before(story, tmp_path):
    name, series, (silent, speaks), labels = STORIES[story]
    played(tmp_path, name, series, {silent: None, speaks: labels})


def test_each_alert_has_a_story():
    assert {name for name, *_ in STORIES.values()} == on_call().keys()


@pytest.mark.parametrize("story", SILENT)
def test_an_alert_is_silent_while_nobody_needs_to_act(story, tmp_path):
    name, series = SILENT[story]
    played(tmp_path, name, series, {f"{minutes}m": None for minutes in range(0, 30, 2)})
