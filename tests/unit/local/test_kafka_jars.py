"""The fetch of Kafka's jars with a fake Maven: it prints its progress, and the reason if it fails."""

from __future__ import annotations

import sys

import pytest

from cacheupdater.local import kafka_jars

FETCHES = """\
import pathlib, sys
(folder,) = [word.partition("=")[2] for word in sys.argv if word.startswith("-DoutputDirectory=")]
for number, size in enumerate(("300 kB", "9.5 MB", "512 B", "12 MB")):
    print(f"[INFO] Downloading from central: https://repo.example/{number}.jar")
    print(f"[INFO] Downloaded from central: https://repo.example/{number}.jar ({size} at 3.1 MB/s)")
pathlib.Path(folder).mkdir()
pathlib.Path(folder, "kafka-clients-4.1.0.jar").touch()
"""
FAILS = """\
print("[ERROR] Could not transfer artifact: repo.example: Name or service not known")
print("[ERROR] another line")
raise SystemExit(1)
"""


@pytest.fixture
def maven(tmp_path, monkeypatch):
    """Puts a program in Maven's place."""

    def put(source):
        program = tmp_path / "bin" / "mvn"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\n{source}")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kafka_jars, "java_version", lambda: "17.0.15")
    return put


def test_a_fetch_says_how_far_it_has_come(maven, capsys):
    maven(FETCHES)
    folder = kafka_jars.jars("4.1.0")
    assert [path.name for path in folder.iterdir()] == ["kafka-clients-4.1.0.jar"]
    first, *progress = capsys.readouterr().err.splitlines()
    assert "fetching Apache Kafka 4.1.0" in first
    assert progress == ["kafka: 10 MB so far", "kafka: 22 MB so far"]
    assert kafka_jars.jars("4.1.0") == folder
    assert capsys.readouterr().err == ""


def test_a_fetch_that_fails_says_why_with_the_first_error(maven):
    maven(FAILS)
    with pytest.raises(OSError, match=r"cannot fetch Kafka: .*Name or service not known"):
        kafka_jars.jars("4.1.0")
