"""A loader's module is found and read, but none of its code is run."""

from __future__ import annotations

import sys

import pytest

from cacheupdater.service.importable import import_problem


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A package in a folder of its own; every module of it would end the test if it were imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "looked_into"
    package.mkdir()
    texts = {
        "__init__": "raise SystemExit",
        "loaders": "raise SystemExit\ndef products(ids): ...\n",
        "dynamic": "raise SystemExit\nfrom .loaders import *\n",
        "broken": "def products(ids:\n",
        "latin": b"# \xe9\n".decode("latin-1"),
    }
    for name, text in texts.items():
        (package / f"{name}.py").write_text(text, encoding="latin-1")
    (tmp_path / "looked_bare").mkdir()  # a namespace package
    (tmp_path / "looked_bare" / "deep.py").write_text("products = None")
    yield
    assert not [name for name in sys.modules if name.startswith("looked_")]


@pytest.mark.parametrize(
    "target",
    [
        "looked_into.loaders:products",
        "looked_into.dynamic:products",
        "looked_into.latin:products",
        "looked_bare.deep:products",
        "json:loads",
        "json.decoder:JSONDecoder",
        "math:floor",
        "itertools:anything",
    ],
)
def test_what_may_be_there_is_accepted(files, target):
    assert not import_problem(target)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (
            "no_such_module_here:f",
            "there is no module 'no_such_module_here' in the working directory or among",
        ),
        ("looked_into.nothing:f", "there is no module 'looked_into.nothing' in looked_into"),
        ("looked_into.loaders.more:f", "looked_into.loaders is a module and holds no module 'more'"),
        ("looked_into.loaders:product", "looked_into.loaders has no 'product'; did you mean 'products'?"),
        ("looked_into.loaders:zzz", "looked_into.loaders has no 'zzz'"),
        ("looked_into.broken:products", "looked_into.broken cannot be read by Python: "),
        ("looked_into:products", "looked_into has no 'products'"),
    ],
)
def test_what_cannot_be_there_is_refused(files, target, problem):
    assert import_problem(target).startswith(problem)
