"""The compose file: valid, closed, and each service that this machine can run has run, its page looked at by a browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest
import redis
from containers.compose_services import FILE, HOME, OURS, Services, browser, document, look, redis_line
from live.updater_process import eventually
from ruamel.yaml import YAML

from cacheupdater.local.children import dying_with_us
from cacheupdater.local.ports import free_port

LONG_S = 60.0
WIDTHS = {"wide": (1280, 900), "narrow": (390, 1500)}
NOT_HERE = {
    "postgres": "the tests' PostgreSQL stands for it",
    "kafka": "the tests' Kafka stands for it",
    "prometheus": "no wheel or Debian package of its version; its file's targets are compared with the services",
}


def services(profile=None):
    found = document()["services"]
    return {name: each for name, each in found.items() if profile is None or profile in each["profiles"]}


# --- what the file says -----------------------------------------------------------------------------------


def test_file_fits_the_schema_of_compose(tmp_path):
    pytest.importorskip("check_jsonschema", reason="no schema of compose: pip install check-jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    broken = tmp_path / "compose.yaml"
    broken.write_text(FILE.read_text().replace("    command: [run", "    comand: [run"))
    codes = [
        subprocess.run([*command, file], capture_output=True, check=False).returncode
        for file in (FILE, broken)
    ]
    assert codes == [0, 1]


@pytest.mark.parametrize("profile", ["core", "full"])
def test_profile_holds_whatever_its_services_depend_on(profile):
    here = services(profile)
    needed = {other for each in here.values() for other in each.get("depends_on", ())}
    assert needed <= here.keys()


def test_profiles_are_the_promised_ones():
    assert set(services("core")) == {"redis", "postgres", "shop", "sidecar"}
    assert set(services("full")) == set(services())
    assert (HOME / ".env").read_text() == "COMPOSE_PROFILES=core\n"


def test_every_service_that_stays_says_how_it_is_and_is_waited_for_until_it_is_well():
    for name, each in services().items():
        assert ("healthcheck" in each) == (name != "topic"), name
        for other, how in each.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if other == "topic" else "service_healthy"
            assert how == {"condition": wanted}, (name, other)


def test_application_waits_for_no_updater():
    for name in ("shop", "shop-group"):
        assert (
            not {"sidecar", "updater-a", "updater-b", "kafka", "topic"}
            & services()[name]["depends_on"].keys()
        )


def test_nothing_is_reachable_from_another_machine_and_ours_have_no_rights():
    for name, each in services().items():
        assert all(port.startswith("127.0.0.1:") for port in each.get("ports", ())), name
        if each["image"].startswith(OURS):
            assert each["read_only"], name
            assert each["cap_drop"] == ["ALL"], name
            assert each["security_opt"] == ["no-new-privileges:true"], name


def test_files_that_are_mounted_are_there_and_prometheus_asks_services_that_exist():
    for each in services().values():
        for source in (volume.split(":")[0] for volume in each.get("volumes", ())):
            assert not source.startswith(".") or (HOME / source).exists(), source
    read = YAML(typ="safe", pure=True).load((HOME / "prometheus.yml").read_text())
    targets = read["scrape_configs"][0]["static_configs"][0]["targets"]
    assert {each.removesuffix(":9090") for each in targets} == {"sidecar", "updater-a", "updater-b"}


def test_databases_that_services_name_are_made():
    named = {
        each.get("environment", {}).get("SHOP_DB", "").rpartition("/")[2] for each in services().values()
    }
    made = set(re.findall(r"^CREATE DATABASE (\w+);$", (HOME / "databases.sql").read_text(), re.MULTILINE))
    assert named - {""} == made


def test_both_configurations_keep_the_same_fresh_at_the_same_cost():
    one, other = (
        YAML(typ="safe", pure=True).load((HOME / name).read_text())
        for name in ("sidecar.yaml", "updater.yaml")
    )
    assert (one["sources"], one["namespaces"]) == (other["sources"], other["namespaces"])


# --- what it does -----------------------------------------------------------------------------------------


@pytest.fixture
def story(redis_url, pg_url):
    with tempfile.TemporaryDirectory(prefix="compose-") as folder:  # a socket's path is short
        database = pg_url.replace("postgresql+asyncpg://", "postgresql://")
        addresses = {
            "redis://redis:6379/0": redis_url,
            "redis://redis:6379/1": redis_url,
            "postgresql+asyncpg://postgres:shop@postgres:5432/shop": pg_url,
            "postgresql://postgres:shop@postgres:5432/shop": database,
            "postgresql+asyncpg://postgres:shop@postgres:5432/shop_group": pg_url,
            "postgresql://postgres:shop@postgres:5432/shop_group": database,
        }
        started = Services(folder, addresses)
        yield started
        started.close()


def lanes(url):
    with urlopen(f"{url}/state", timeout=30) as answer:
        state = json.loads(answer.read())
    assert not state["trouble"], state["trouble"]
    return {each["name"]: each for each in state["lanes"]}


def refreshes(story, name):
    """That this updater has written so far."""
    with urlopen("http://" + story.places[name]["0.0.0.0:9090"] + "/metrics", timeout=30) as page:
        found = re.findall(
            r'^cacheupdater_refreshes_total\{.*result="written".*\} (\S+)$',
            page.read().decode(),
            re.MULTILINE,
        )
    return sum(map(float, found))


@pytest.mark.prove
def test_core_runs_and_its_page_shows_four_lanes_without_an_error_on_the_console(story, figures_folder):
    story.ready("shop")  # before its sidecar: it waits for nobody
    story.ready("sidecar")
    assert story.healthy("shop")
    assert story.healthy("sidecar")
    eventually(lambda: refreshes(story, "sidecar") > 100, within=LONG_S)
    url = story.url("shop")
    eventually(lambda: all(each["reads"] > 500 for each in lanes(url).values()), within=LONG_S)
    pictures = pictures_of(url, figures_folder)
    eventually(lambda: lanes(url)["told"]["stale"] < lanes(url)["ttl"]["stale"], within=LONG_S)
    print(
        {name: (round(each["stale"], 4), round(each["waited"], 4)) for name, each in lanes(url).items()},
        pictures,
    )
    assert story.end("sidecar") == 0
    assert lanes(url)["told"]["reads"] > 500  # the shop goes on
    assert story.end("shop") == 0


def pictures_of(url, folder):
    """A picture at each width, of a page that shows what it should."""
    if browser() is None:
        return "no browser: install chromium to have the page looked at"
    for name, (width, height) in WIDTHS.items():
        eye = partial(look, url, width=width, height=height, profile=folder / f"profile-{name}")
        page, said = eye("--dump-dom")
        assert (said, page.count('class="lane"'), page.count("<tr>")) == ([], 4, 11)
        assert "the application does not answer" not in page.partition("<script>")[0]
        _, said = eye(f"--screenshot={folder}/compose-{name}.png")
        assert said == []
    return f"{len(WIDTHS)} pictures in {folder}, nothing on the console"


@pytest.mark.prove
def test_full_makes_its_topic_and_two_updaters_share_the_work(story, kafka):
    story.addresses["kafka://kafka:9092/hints"] = f"kafka://{kafka.bootstrap}/compose-{os.getpid()}"
    assert story.done("topic") == 0, story.log("topic")
    for name in ("updater-a", "updater-b"):
        story.ready(name)
    story.ready("shop-group")
    for name in ("updater-a", "updater-b"):
        eventually(partial(lambda name: refreshes(story, name) > 20, name), within=LONG_S)
        assert story.healthy(name)
    assert story.healthy("shop-group")
    assert [story.end(name) for name in ("updater-a", "updater-b", "shop-group")] == [0, 0, 0]


@pytest.mark.prove
def test_redis_runs_by_the_command_of_its_service():
    port = free_port()
    with subprocess.Popen(dying_with_us(redis_line(port)), stdout=subprocess.DEVNULL) as server:
        with redis.Redis(port=port) as client:

            def answers():
                try:
                    return client.ping()
                except redis.ConnectionError:
                    return False

            eventually(answers)
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}
        server.terminate()


@pytest.mark.prove
def test_every_service_has_run_or_it_is_said_why_not():
    ran = {"redis", "shop", "sidecar", "topic", "updater-a", "updater-b", "shop-group"}
    assert ran | NOT_HERE.keys() == services().keys()
    for name, why in NOT_HERE.items():
        print(f"left out: {name}: {why}")


@pytest.fixture
def figures_folder(tmp_path):
    """COMPOSE_PICTURES names a folder that outlives the test."""
    return Path(os.environ.get("COMPOSE_PICTURES") or tmp_path)  # noqa: TID251  of whoever looks at them
