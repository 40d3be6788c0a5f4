"""`cacheupdater record` and `cacheupdater plan` as a person uses them. Tests under real load are in tests/integration."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cacheupdater.cli import main
from cacheupdater.recording.recording import Recording, Space, Watched, decode, encode

SAMPLE = [Watched(1 + n % 50, float(n % 2), 40.0, False) for n in range(100)]
RECORDING = Recording(
    60.0,
    [
        Space("product", "main", 1.0, None, dict.fromkeys(range(1, 51), 100), 600, 0.5, SAMPLE),
        Space("banner", "code", 1.0, None, {}, 0, None, []),
    ],
    0,
)

_CONFIG = """\
version: 1
listen: [%s]
cache: {url: "redis://127.0.0.1:1/0"}
sources: {main: {budget: 500/s, least_gain: 0.25}}
namespaces: {banner: {key: "banner:{slot}", load: {source: main, python: "cacheupdater_no_such_module:banners"}}}
"""


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "minute.rec"
    file.write_bytes(encode(RECORDING))
    return file


def plan(file, budget="10/s,100/s,50ms/s"):
    return main(["plan", str(file), "--budget", budget])


def test_a_plan_has_a_line_per_budget_and_says_how_certain_it_is(file, capsys):
    assert plan(file) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == "2,125 reads/s of 5,000 keys, recorded for 60s"
    assert lines[1].startswith("change rates from 100 sampled keys, 50 of which were seen to change;")
    assert lines[3].split("  ")[0] == "SOURCE"
    rows = [line.split() for line in lines[4:7]]
    assert [row[1] for row in rows] == ["10/s", "100/s", "50ms/s"]
    assert rows[1][3:] != rows[0][3:]
    assert rows[1][3] == rows[2][3]  # half a millisecond a row
    assert lines[-1] == "10 changes a second were announced; with them reads are fresher than this."
    assert "little to go by" not in out


def test_the_same_recording_gives_the_same_plan(file, capsys):
    assert plan(file) == plan(file) == 0
    out = capsys.readouterr().out
    assert out[: len(out) // 2] == out[len(out) // 2 :]


def test_a_small_sample_is_said_to_be_small(file, capsys):
    few = Space("product", "main", 1.0, None, {3: 100}, 0, None, SAMPLE[:12])
    file.write_bytes(encode(Recording(60.0, [few], 0)))
    assert plan(file) == 0
    assert "little to go by" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file"),
        (b"\x89PNG\r\n", "is no recording"),
        (encode(RECORDING)[:-3], "is damaged"),
        (encode(Recording(60.0, [Space("p", "main", 1.0, None, {1: 2}, 0, None, [])], 0)), "holds no sample"),
    ],
)
def test_a_file_that_is_no_good_recording_ends_with_78(file, capsys, content, why):
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    assert plan(file) == 78
    printed = capsys.readouterr()
    assert str(file) in printed.err
    assert why in printed.err
    assert not printed.out


def test_a_recording_without_reads_says_so(file, capsys):
    file.write_bytes(encode(Recording(60.0, [], 0)))
    assert plan(file) == 78
    assert "nothing was read" in capsys.readouterr().err


@pytest.fixture
def record(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cacheupdater_no_such_module.py").write_text("def banners(keys): return {}\n")

    def record(listen, output):
        (tmp_path / "cacheupdater.yaml").write_text(_CONFIG % listen)
        return main(["record", "--for", "1s", "-o", str(output)])

    return record


def test_a_second_without_a_read_is_recorded_as_such(record, tmp_path, capsys):
    assert record(f'"unix://{tmp_path}/s"', tmp_path / "x.rec") == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == f"ready unix://{tmp_path}/s"
    [space] = decode((tmp_path / "x.rec").read_bytes()).spaces
    assert space.least_gain == 0.25
    assert out.splitlines()[1].endswith("x.rec: 0 reads of 0 keys in 1s, and 0 keys watched for changes")
    assert not (tmp_path / "s").exists()
    assert not (tmp_path / "x.rec.part").exists()


def test_a_place_that_cannot_be_written_is_said_before_the_minute(record, tmp_path, capsys):
    assert record(f'"unix://{tmp_path}/s"', tmp_path / "nowhere" / "x.rec") == 78
    printed = capsys.readouterr()
    assert "cannot be written: No such file or directory" in printed.err
    assert not printed.out


def test_a_mailbox_cannot_be_recorded_from_outside(record, tmp_path, capsys):
    assert record('"memory://main"', tmp_path / "x.rec") == 78
    assert "heard by its own process only" in capsys.readouterr().err
    assert not (tmp_path / "x.rec.part").exists()


RECORDS = """
import sys
from cacheupdater.service import record
from cacheupdater.recording.recording import Recording
async def recorded(*_, **__):
    return Recording(60.0, [], 0)
record.record = recorded
from cacheupdater.cli import main
raise SystemExit(main(sys.argv[1:]))
"""


def test_a_link_that_somebody_put_beside_the_recording_leads_nowhere(tmp_path):
    victim, config = tmp_path / "victim", tmp_path / "shop.yaml"
    victim.write_text("precious")
    (tmp_path / "minute.rec.part").symlink_to(victim)
    config.write_text(_CONFIG % "'tcp://127.0.0.1:0'")
    command = [sys.executable, "-c", RECORDS, "record", "-c", str(config), "-o", str(tmp_path / "minute.rec")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, victim.read_text()) == (0, "precious"), done.stderr
    assert (tmp_path / "minute.rec").is_file()
    assert not (tmp_path / "minute.rec").is_symlink()
