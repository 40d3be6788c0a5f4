"""The workflows pin what they use, and sign and attest what they publish. Broken copies show that the tests would notice."""

from __future__ import annotations

import copy
import importlib.util
import io
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from containers import workflow_promises as promises

ROOT = Path(__file__).parents[2]
WORKFLOWS = promises.workflows()
RELEASE = WORKFLOWS["release.yml"]
# the steps that make a release trustworthy: a test fails if one of them is removed from its job
TRUSTED = [
    (job, at)
    for job, about in RELEASE["jobs"].items()
    for at, step in enumerate(about.get("steps", ()))
    if re.search(r"actions/attest|cosign|pypi-publish", step.get("uses", "") + step.get("run", ""))
]


@pytest.fixture(scope="module")
def pins():
    spec = importlib.util.spec_from_file_location("pins", ROOT / ".github/pins.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- pins -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_action_and_image_is_pinned(name):
    assert list(promises.unpinned_actions(WORKFLOWS[name], promises.PINS)) == []
    assert list(promises.unpinned_images(WORKFLOWS[name])) == []


def test_every_base_of_the_image_is_pinned():
    assert list(promises.unpinned_bases((ROOT / "Dockerfile").read_text(), promises.PINS)) == []


@pytest.mark.parametrize("other", ["@v7", "@main", f"@{'0' * 40}", ""])
def test_an_action_that_is_not_pinned_is_found(other):
    (name,) = (each for each in WORKFLOWS["pins.yml"]["jobs"])
    workflow = copy.deepcopy(WORKFLOWS["pins.yml"])
    step = workflow["jobs"][name]["steps"][0]
    step["uses"] = step["uses"].partition("@")[0] + other
    assert list(promises.unpinned_actions(workflow, promises.PINS))


@pytest.mark.parametrize(
    "line",
    [
        "FROM docker.io/library/python:3.12.13-slim-bookworm",
        "FROM docker.io/library/debian:bookworm",
        "ARG BASE_IMAGE=docker.io/library/python:3.12.13-slim-bookworm\nFROM ${BASE_IMAGE}",
    ],
)
def test_a_base_that_is_not_pinned_is_found(line):
    assert list(promises.unpinned_bases(f"{line}\n", promises.PINS))


def test_an_image_of_a_job_that_is_not_pinned_is_found():
    workflow = {
        "jobs": {"one": {"services": {"redis": {"image": "redis:8"}}}, "two": {"container": "debian:12"}}
    }
    assert len(list(promises.unpinned_images(workflow))) == 2


def test_each_pin_is_used():
    names = {"/".join(each.split("@")[0].split("/")[:2]) for each in map(str, _all_used())}
    assert {each for each in names if not each.startswith(".")} == set(promises.PINS["actions"])


def _all_used():
    return [each for workflow in WORKFLOWS.values() for each in promises.used(workflow)]


def test_the_file_of_pins_is_as_its_script_writes_it(pins):
    assert (ROOT / ".github/pins.json").read_text() == pins.written(promises.PINS)


def test_filling_writes_the_pins_wherever_a_workflow_uses_them(pins):
    said = {
        "actions": {"actions/cache": {"version": "v5.1.0", "commit": "c" * 40}},
        "images": {"docker.io/library/python": {"version": "3.12.14-slim", "digest": f"sha256:{'d' * 64}"}},
    }
    text = (
        "      - uses: actions/cache/restore@v4\n      - uses: other/thing@v1 # known to nobody\n"
        "ARG BASE_IMAGE=docker.io/library/python:3.12.13-slim@sha256:00\n"
    )
    assert pins.filled(text, said) == (
        f"      - uses: actions/cache/restore@{'c' * 40} # v5.1.0\n      - uses: other/thing@v1 # known to nobody\n"
        f"ARG BASE_IMAGE=docker.io/library/python:3.12.14-slim@sha256:{'d' * 64}\n"
    )


def test_filling_changes_no_committed_file(pins):
    for each in pins.places():
        text = each.read_text()
        assert pins.filled(text, promises.PINS) == text, f"{each.name}: run .github/pins.py fill"


@pytest.mark.parametrize(
    ("versions", "now", "fixed", "found"),
    [
        (["v7.0.1", "v7.2.0", "v7.10.0", "v8.0.0", "v7", "v7.11.0-rc1"], "v7.0.1", 1, "v7.10.0"),
        (
            ["3.12.13-slim-bookworm", "3.12.20-slim-bookworm", "3.12.21-slim", "3.13.1-slim-bookworm"],
            "3.12.13-slim-bookworm",
            2,
            "3.12.20-slim-bookworm",
        ),
        ([], "v1.2.3", 1, "v1.2.3"),
    ],
)
def test_the_newest_version_stays_within_the_major_version_and_flavour(pins, versions, now, fixed, found):
    assert pins.newest(versions, now, fixed=fixed) == found


def test_renewing_an_action_takes_the_commit_of_an_annotated_tag(pins, monkeypatch):
    refs = {"v7.0.1": "a", "v7.1.0": "b", "v7.1.0^{}": "c", "v8.0.0": "d", "v7": "e"}
    said = "".join(f"{commit * 40}\trefs/tags/{tag}\n" for tag, commit in refs.items())
    monkeypatch.setattr(pins.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, said))
    pin = {"version": "v7.0.1", "commit": "a" * 40}
    pins.renew_action("actions/checkout", pin)
    assert pin == {"version": "v7.1.0", "commit": "c" * 40}


@pytest.mark.parametrize("kind", ["index", "manifest"])
def test_renewing_an_image_takes_the_digest_of_all_architectures(pins, monkeypatch, kind):
    def asked(url, headers):
        answer = io.BytesIO()
        answer.headers = {}
        if "/token" in url:
            answer.write(b'{"token": "t"}')
        elif "/tags/list" in url:
            assert headers["Authorization"] == "Bearer t"
            last = "last=" in url
            answer.write(
                b'{"tags": ["3.12.21-slim"]}' if last else b'{"tags": ["3.12.13-slim", "3.12.9-slim"]}'
            )
            answer.headers = {} if last else {"Link": '</v2/library/python/tags/list?last=x>; rel="next"'}
        else:
            assert url.endswith("/library/python/manifests/3.12.21-slim")
            answer.headers = {
                "Content-Type": f"application/vnd.oci.image.{kind}.v1+json",
                "Docker-Content-Digest": f"sha256:{'e' * 64}",
            }
        answer.seek(0)
        return answer

    monkeypatch.setattr(pins, "_asked", asked)
    pin = {"version": "3.12.13-slim", "digest": "sha256:00"}
    if kind == "manifest":
        with pytest.raises(SystemExit, match="of one architecture only"):
            pins.renew_image("docker.io/library/python", pin)
        return
    pins.renew_image("docker.io/library/python", pin)
    assert pin == {"version": "3.12.21-slim", "digest": f"sha256:{'e' * 64}"}


# --- promises -------------------------------------------------------------------------------------------


def test_a_release_signs_attests_and_verifies_all_that_it_publishes():
    assert list(promises.release_lacks(RELEASE)) == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_no_workflow_has_rights_or_secrets_that_it_does_not_need(name):
    assert list(promises.careless(WORKFLOWS[name])) == []


@pytest.mark.parametrize(("job", "at"), TRUSTED)
def test_a_release_without_one_of_its_steps_of_trust_is_found(job, at):
    workflow = copy.deepcopy(RELEASE)
    del workflow["jobs"][job]["steps"][at]
    assert list(promises.release_lacks(workflow))


def test_a_release_has_eleven_steps_of_trust():
    assert len(TRUSTED) == 11


@pytest.mark.parametrize("job", ["package", "build-image", "image", "chart"])
@pytest.mark.parametrize("right", ["id-token", "attestations"])
def test_a_release_without_the_right_to_prove_itself_is_found(job, right):
    workflow = copy.deepcopy(RELEASE)
    del workflow["jobs"][job]["permissions"][right]
    assert list(promises.release_lacks(workflow))


def test_a_release_for_one_architecture_with_a_password_or_without_tests_is_found():
    for spoil in (
        lambda jobs: jobs["build-image"]["strategy"]["matrix"]["include"].pop(),
        lambda jobs: jobs["package"]["steps"][-1]["with"].update(password="x"),
        lambda jobs: jobs["package"]["steps"][-1]["with"].update(attestations=False),
        lambda jobs: jobs["build-image"]["needs"].remove("test"),
        lambda jobs: jobs["image"]["steps"][-1].update({"continue-on-error": True}),
    ):
        workflow = copy.deepcopy(RELEASE)
        spoil(workflow["jobs"])
        assert list(promises.release_lacks(workflow))


def test_tests_run_where_we_say_that_we_run():
    matrix = WORKFLOWS["test.yml"]["jobs"]["suite"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert {each.split("-")[0] for each in matrix["system"]} == {"ubuntu", "macos"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = [each.rpartition(" ")[2] for each in project["classifiers"] if "Python :: 3." in each]
    assert set(said) <= set(matrix["python"])
    assert project["requires-python"] == f">={matrix['python'][0]}"


def test_the_makefile_has_all_targets_that_workflows_call():
    makefile = (ROOT / "Makefile").read_text()
    called = set(re.findall(r"\bmake ([a-z-]+)", json.dumps(WORKFLOWS, default=str)))
    assert called >= {"test", "package"}
    for each in called:
        assert re.search(rf"^{each}:", makefile, re.MULTILINE), each


# --- dependencies ---------------------------------------------------------------------------------------


def test_the_suite_is_installed_by_hash():
    (job,) = (job for name, job in WORKFLOWS["test.yml"]["jobs"].items() if name == "suite")
    runs = [step["run"] for step in job["steps"] if "make" in step.get("run", "")]
    assert runs == ["make test PYTHON=python LOCKED=1"]
    recipe = (ROOT / "Makefile").read_text().partition("$(DEV): ")[2]
    assert "--require-hashes --requirement image/dev.lock" in recipe
    tools = (ROOT / "Makefile").read_text().partition("$(IMAGE_TOOLS): ")[2]
    assert "--require-hashes --requirement image/tools.lock" in tools.partition("\n\n")[0]


def test_ci_tests_the_oldest_dependencies_and_looks_for_known_holes():
    steps = WORKFLOWS["test.yml"]["jobs"]["dependencies"]["steps"]
    assert {"make lowest PYTHON=python", "make audit PYTHON=python"} <= {step.get("run") for step in steps}


AUDITED = """
import json, runpy, subprocess, sys
def answer(command, **_):
    service = command[command.index("--vulnerability-service") + 1]
    return subprocess.CompletedProcess(command, 0, json.dumps({"dependencies": ANSWERS[service]}), "")
ANSWERS = json.loads(sys.argv[1])
subprocess.run = answer
sys.exit(runpy.run_path("image/audit.py")["main"]())
"""
SKIPPED = [{"name": "redis", "skip_reason": "not found on PyPI"}]
SOUND = [{"name": "redis", "version": "8", "vulns": []}]
HOLED = [{"name": "redis", "version": "8", "vulns": [{"id": "CVE-1", "fix_versions": ["9"]}]}]


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    [
        ({"pypi": SKIPPED, "osv": []}, 3, "nothing is known"),
        ({"pypi": SKIPPED, "osv": SOUND}, 0, "osv knows 1 packages, of 0 nothing; holes: 0"),
        ({"pypi": SOUND + SKIPPED, "osv": []}, 3, "of 1 nothing"),
        ({"pypi": HOLED, "osv": []}, 1, "redis 8: CVE-1, mended in 9"),
    ],
)
def test_an_audit_that_could_ask_nobody_is_no_all_clear(answers, code, said):
    command = [sys.executable, "-c", AUDITED, json.dumps(answers)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stdout) == (code, True), done.stdout + done.stderr
