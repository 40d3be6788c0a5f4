"""Style that a machine can check: lengths, module docstrings, words, and a test file beside each rule of the core.

After TigerBeetle's tidy: a limit that is not checked is a wish. The numbers are in CONTRIBUTING.md.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCES = sorted([*(ROOT / "cacheupdater").rglob("*.py"), *(ROOT / "client").rglob("*.py")])
TESTS = sorted((ROOT / "tests").rglob("*.py"))
OTHERS = sorted([*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "examples").rglob("*.py")])

FUNCTION_LINES = 70
MODULE_LINES = 400
PARAMETERS = 6
SENTENCE_WORDS = 35
PAGES = sorted({*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")})
LONG_PAGES = {"CHANGELOG.md"}  # a list of changes is not read in one go
SAYS_ANY = ("adapters",)  # where foreign signatures need it
# redis-py types its commands, not its seams
CLIENT_SEAMS = {
    "instrumented.py",
    "patched.py",
    "redis.py",
    "redis_nodes.py",
    "cluster.py",
    "sentinel.py",
    "wrapping.py",
    "observe.py",
    "calls.py",
    "store.py",
}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError")


def name_of(path):
    return str(path.relative_to(ROOT))


def statements(node):
    """All statements in this one. With `ast.walk`, which visits each expression too, the longest test took 1.6 times as long."""
    for block in ("body", "orelse", "handlers", "finalbody", "cases"):
        for each in getattr(node, block, ()):
            yield each
            yield from statements(each)


def functions(path):
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def long_functions(path):
    return [
        f"{name_of(path)}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in functions(path)
        if node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    ]


def wide_functions(path):
    wide = []
    for node in functions(path):
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        own = [each for each in given if each.arg not in {"self", "cls"}]
        if len(own) > PARAMETERS:
            wide.append(f"{name_of(path)}:{node.lineno} {node.name}: {len(own)} parameters")
    return wide


def test_no_function_is_longer_than_a_page():
    assert [said for path in (*SOURCES, *TESTS, *OTHERS) for said in long_functions(path)] == []


def faults(path):
    """What a module lacks, or has too much of."""
    text, name = path.read_text(), name_of(path)
    found = wide_functions(path)
    if text.count("\n") > MODULE_LINES:
        found.append(f"{name}: {text.count(chr(10))} lines")
    if text.strip() and not ast.get_docstring(ast.parse(text)):
        found.append(f"{name}: does not say what it is for")
    if UNFINISHED.search(text):
        found.append(f"{name}: is not finished")
    return found


def test_a_module_is_short_opens_with_its_story_and_is_finished():
    assert [said for path in SOURCES for said in faults(path)] == []


def long_sentences(text):
    """The long sentences of a page, without tables, headings and code blocks. Text in backquotes counts as one word."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`\n]*`", "code", text))
    said = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#"))]
    sentences = [each for line in said for each in re.split(r"(?<=[.!?])\s+", line)]
    return [each for each in sentences if len(re.findall(r"[\w'%-]+", each)) > SENTENCE_WORDS]


@pytest.mark.parametrize("path", [each for each in PAGES if each.name not in LONG_PAGES], ids=name_of)
def test_a_sentence_of_a_page_can_be_read_at_once(path):
    assert long_sentences(path.read_text()) == []


def lines_with_any(path):
    text = path.read_text()
    nodes = ast.walk(ast.parse(text)) if "Any" in text else ()
    return [f"{name_of(path)}:{node.lineno}" for node in nodes if getattr(node, "id", "") == "Any"]


def test_any_stays_in_the_adapters():
    elsewhere = [
        path for path in SOURCES if not set(SAYS_ANY) & set(path.parts) and path.name not in CLIENT_SEAMS
    ]
    assert [said for path in elsewhere for said in lines_with_any(path)] == []


@pytest.mark.parametrize("path", sorted((ROOT / "cacheupdater" / "core").glob("[a-z]*.py")), ids=name_of)
def test_each_rule_of_the_core_has_a_test_file_of_its_own(path):
    # data; dedup: see the model test
    untested = {"hints", "answers", "namespace", "limits", "unit", "metrics", "events", "dedup"}
    if path.stem not in untested:
        assert (ROOT / "tests" / "unit" / "core" / f"test_{path.stem}.py").exists()


def absent_from(table):
    """The files that a table of ARCHITECTURE.md names and that do not exist."""
    said = re.findall(r"`(\w[\w.-]*/[\w./-]*|\w+\.py)`", table)
    return [
        each for each in said if not any((place / each).exists() for place in (ROOT / "cacheupdater", ROOT))
    ]


def test_each_file_exists_that_the_map_names_for_a_rule():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    table = page[page.index("| question | file |") : page.index("## Entry points")]
    assert table.count("\n| ") > 50
    assert absent_from(table) == []


def test_the_checks_find_what_they_are_for(tmp_path, monkeypatch):
    bad = tmp_path / "bad.py"
    bad.write_text("def f(a, b, c, d, e, f, g):\n" + "    pass\n" * FUNCTION_LINES)
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert long_functions(bad) == [f"bad.py:1 f: {FUNCTION_LINES + 1} lines"]
    assert wide_functions(bad) == ["bad.py:1 f: 7 parameters"]
    assert long_sentences("| " + "word " * 40 + "|\n" + "word " * 35 + "\n" + "word " * 36) == ["word " * 36]
    assert faults(bad) == ["bad.py:1 f: 7 parameters", "bad.py: does not say what it is for"]
    bad.write_text('"""A story."""\n# TO' + "DO Any\n" + "\n" * MODULE_LINES + "x: Any\n")
    assert faults(bad) == [f"bad.py: {MODULE_LINES + 3} lines", "bad.py: is not finished"]
    assert lines_with_any(bad) == [f"bad.py:{MODULE_LINES + 3}"]
    assert absent_from("| a rule | `bad.py`, `core/gone.py`, `gone.py` |") == ["core/gone.py", "gone.py"]
