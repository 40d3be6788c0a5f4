"""`cacheupdater collect` before it runs: what its arguments and its file make of it, and what is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from cacheupdater import cli
from cacheupdater.cli import exits
from cacheupdater.cli import serve as serving
from cacheupdater.collector import Collector
from cacheupdater.collector.drain import STOPPED_EXIT, Drain, DrainSettings
from cacheupdater.core import depot_url
from cacheupdater.core.spilling import Limits

KAFKA = "kafka://127.0.0.1:1/hints"
STREAMS = "redis://:sesame@127.0.0.1:1/3?stream=hints"
OLD = "postgresql://hints:sesame@db/hints?session_timeout=2s"
UPDATER = "unix:///run/updater.sock"
CONFIG = """\
version: 1
{more}
cache: {{url: "redis://127.0.0.1:1/0"}}
sources: {{main: {{budget: 500/s}}}}
namespaces:
  banner: {{key: "banner:{{slot}}", load: {{source: main, python: "no_such_module:banners"}}}}
  other: {{key: "other:{{slot}}", load: {{source: main, python: "no_such_module:banners"}}}}
"""


class Begun(Exception):
    """The process would have begun again."""


@pytest.fixture
def collect(tmp_path, capsys, monkeypatch):
    """Runs the command; its exit code, its errors, and the settings of the collector that would have run."""
    found = []

    def begin_again(_, command, environment):
        assert command[1:5] == ["-P", "-m", "cacheupdater", "collect"]
        assert "sesame" not in " ".join(command), "every user of the machine may read the list of processes"
        with monkeypatch.context() as patch:
            patch.setattr(os, "environ", environment)
            found.append(cli.main(command[4:]))
        raise Begun

    def served(collector):
        assert isinstance(collector, Collector | Drain)
        found.append(collector._settings)
        return 0

    monkeypatch.setattr(os, "execve", begin_again)
    monkeypatch.setattr(serving, "serve", served)
    monkeypatch.chdir(tmp_path)
    for name in ("CACHEUPDATER_CONFIG", "CACHEUPDATER_QUEUE", "CACHEUPDATER_DRAIN"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments, file=None):
        if file is not None:
            (tmp_path / "cacheupdater.yaml").write_text(CONFIG.format(more=file))
        found.clear()
        try:
            code = cli.main(["collect", *arguments])
        except Begun:
            code = found.pop()
        return code, capsys.readouterr().err, found[0] if found else None

    return run


def test_a_queue_is_enough_and_the_conventional_socket_is_where_clients_look(collect):
    code, _, settings = collect("--queue", KAFKA)
    assert code == 0
    assert (settings.listen, settings.queue) == (["unix:///run/cacheupdater/hints.sock"], KAFKA)
    assert (list(settings.only), settings.admin) == ([], None)


def test_arguments_say_everything(collect):
    code, _, settings = collect(
        *("--queue", UPDATER, "--listen", "unix:///a.sock", "tcp://127.0.0.1:7171"),
        *("--only", "product:", "grün:", "--admin", "127.0.0.1:9464"),
    )
    assert code == 0
    assert (settings.listen, settings.queue) == (["unix:///a.sock", "tcp://127.0.0.1:7171"], UPDATER)
    assert (settings.only, settings.admin) == ([b"product:", "grün:".encode()], "127.0.0.1:9464")


def test_a_file_says_everything_and_options_of_updaters_are_no_concern_of_a_collector(collect):
    file = (
        f'queue: {{url: "{KAFKA}?group=shop&session_timeout=10s&ca=/etc/ca.pem"}}\n'
        'listen: ["unix:///a.sock"]\nadmin: {listen: "127.0.0.1:9464"}'
    )
    code, err, settings = collect(file=file)
    assert (code, err) == (0, "")
    assert (settings.listen, settings.admin) == (["unix:///a.sock"], "127.0.0.1:9464")
    assert settings.queue == f"{KAFKA}?ca=%2Fetc%2Fca.pem"
    assert settings.only == [b"banner:", b"other:"]


def test_a_file_with_streams_says_how_to_reach_them_and_its_password_is_no_argument(collect):
    options = "&partitions=6&length=500&evicting=allowed"
    file = f'queue: {{url: "{STREAMS}{options}&session_timeout=3s&socket_timeout=2"}}'
    code, err, settings = collect(file=file)
    assert (code, err) == (0, "")
    expected = STREAMS.replace("?", "?socket_timeout=2&") + options
    assert settings.queue == expected
    assert settings.only == [b"banner:", b"other:"]


def test_the_environment_may_name_the_queue(collect, monkeypatch):
    monkeypatch.setenv("CACHEUPDATER_QUEUE", STREAMS)
    assert collect()[2].queue == STREAMS
    assert collect("--queue", KAFKA)[2].queue == KAFKA
    monkeypatch.setenv("CACHEUPDATER_QUEUE", "redis://:sesame@127.0.0.1/0")
    code, err, _ = collect()
    assert code == 2
    assert "names no stream" in err
    assert "sesame" not in err


def test_a_file_that_the_environment_names_is_read_once_and_may_be_missing_beside_a_queue(
    collect, monkeypatch, tmp_path
):
    """As in the image, whose environment names a file."""
    monkeypatch.setenv("CACHEUPDATER_CONFIG", str(tmp_path / "cacheupdater.yaml"))
    assert collect()[0] == 78
    code, _, settings = collect("--queue", KAFKA)
    assert (code, list(settings.only)) == (0, [])
    code, _, settings = collect(file=f'queue: {{url: "{KAFKA}"}}')
    assert (code, settings.only) == (0, [b"banner:", b"other:"])


def test_the_container_of_the_page_is_a_collector(collect, monkeypatch):
    """As in the image, whose environment names a file that is not there."""
    page = Path(__file__).parents[3] / "docs/how-to/collector.md"
    [said] = re.findall(r"```yaml\n(initContainers:.*?)```", page.read_text(), re.DOTALL)
    [container] = YAML(typ="safe", pure=True).load(said)["initContainers"]
    monkeypatch.setenv("CACHEUPDATER_CONFIG", "/etc/cacheupdater/cacheupdater.yaml")
    monkeypatch.setenv(container["env"][0]["name"], STREAMS)
    command, *arguments = container["args"]
    code, _, settings = collect(*arguments)
    assert (command, code) == ("collect", 0)
    assert (settings.queue, settings.only) == (STREAMS, [b"product:", b"basket:"])
    assert settings.listen == ["unix:///run/cacheupdater/hints.sock"]
    assert settings.admin == f"0.0.0.0:{container['livenessProbe']['httpGet']['port']}"


def test_a_file_without_addresses_means_the_conventional_socket(collect):
    code, _, settings = collect(file=f'queue: {{url: "{KAFKA}"}}')
    assert code == 0
    assert settings.listen == ["unix:///run/cacheupdater/hints.sock"]


def test_programs_in_other_languages_have_an_address_of_their_own(collect):
    code, _, settings = collect("--queue", KAFKA, "--listen", "http://127.0.0.1:7172")
    assert code == 0
    assert settings.listen == ["http://127.0.0.1:7172"]
    assert collect("--queue", KAFKA, "--listen", "http://127.0.0.1:7172/v1/hints")[0] == 2


def test_arguments_count_more_than_the_file(collect):
    file = f'queue: {{url: "{KAFKA}"}}\nlisten: ["unix:///a.sock"]'
    code, _, settings = collect(
        "-c", "cacheupdater.yaml", "--queue", UPDATER, "--listen", "unix:///b.sock", "--only", "x:", file=file
    )
    assert code == 0
    assert (settings.queue, settings.listen, settings.only) == (UPDATER, ["unix:///b.sock"], [b"x:"])


def test_a_file_that_nobody_names_is_not_read_beside_a_queue(collect):
    code, _, settings = collect("--queue", KAFKA, file="this: is: no: yaml")
    assert code == 0
    assert list(settings.only) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--queue", "redis://127.0.0.1/0"),
        ("--queue", "memory://"),
        ("--queue", "kafka://no-port/hints"),
        ("--queue", KAFKA, "--listen", "memory://main"),
        ("--queue", KAFKA, "--listen", "127.0.0.1:7171"),
        ("--queue", KAFKA, "--only", ""),
        ("--queue", KAFKA, "--admin", "9464"),
        ("--queue", KAFKA, "--spill", "/spill", "--spill-keep", "changes=1"),
        ("--queue", KAFKA, "--spill", "/spill", "--spill-keep", "touches=0s"),
        ("--queue", KAFKA, "--spill", "/spill", "--spill-keep", "reads=1s"),
        ("--queue", KAFKA, "--spill", "/spill", "--spill-size", "1024"),
        ("--queue", KAFKA, "--spill", "/spill", "--spill-size", "15MiB"),
        ("--queue", KAFKA, "--spill", "/spill", "--spill-rate", "0/s"),
        ("--queue",),
    ],
)
def test_arguments_that_cannot_be_meant_are_bad_usage(collect, arguments):
    code, err, _ = collect(*arguments)
    assert code == 2
    assert arguments[-2 if len(arguments) > 1 else 0] in err


def test_a_file_with_the_queue_of_an_updater_is_refused(collect):
    code, err, _ = collect(file="listen: ['unix:///a.sock']")
    assert code == 78
    assert "within one process" in err
    assert "--queue" in err


@pytest.mark.parametrize(
    "url", ["sqlite:////var/lib/hints.db?partitions=3", "postgresql://me:sesame@db/shop?partitions=3"]
)
def test_a_queue_in_a_database_may_be_an_argument_or_stand_in_the_file(collect, url):
    code, _, settings = collect("--queue", url)
    assert (code, settings.queue) == (0, url)
    code, _, settings = collect(
        file=f'queue: {{url: "{url}&session_timeout=9s"}}\nlisten: ["unix:///a.sock"]'
    )
    assert code == 0
    assert depot_url.parse(settings.queue) == depot_url.parse(url)


def test_a_collector_does_not_forward_to_itself(collect):
    code, err, _ = collect("--queue", UPDATER, "--listen", UPDATER)
    assert code == 78
    assert "itself" in err


def test_without_a_queue_and_a_file_the_missing_file_is_named(collect):
    code, err, _ = collect()
    assert code == 78
    assert "cacheupdater.yaml" in err


def test_a_spill_has_its_limits_with_and_without_a_file(collect):
    arguments = (
        *("--spill", "/var/lib/spill", "--spill-keep", "changes=2h", "touches=1500ms"),
        *("--spill-size", "1GiB", "--spill-rate", "800/s"),
    )
    for more in (("--queue", KAFKA), ()):
        code, _, settings = collect(*arguments, *more, file=f'queue: {{url: "{KAFKA}"}}')
        assert code == 0
        assert settings.spill == "/var/lib/spill"
        assert settings.limits == Limits(changes_s=7200.0, touches_s=1.5, size=1024 * 1024 * 1024, rate=800.0)
    assert collect("--queue", KAFKA)[2].spill is None


def test_limits_of_a_spill_without_its_directory_are_refused(collect):
    code, err, _ = collect("--queue", KAFKA, "--spill-keep", "changes=2h")
    assert code == 78
    assert "--spill" in err


def test_an_old_queue_is_drained_into_the_new_one(collect, monkeypatch):
    code, err, settings = collect("--drain", OLD, "--queue", KAFKA, "--admin", "127.0.0.1:9464")
    assert (code, err) == (0, "")
    assert settings == DrainSettings(drain=OLD, queue=KAFKA, admin="127.0.0.1:9464")
    monkeypatch.setenv("CACHEUPDATER_DRAIN", OLD)
    assert collect("--queue", KAFKA)[2] == DrainSettings(drain=OLD, queue=KAFKA)
    assert collect("--drain", "sqlite:////old.db", "--queue", KAFKA)[2].drain == "sqlite:////old.db"


def test_a_drain_takes_the_new_queue_from_a_file_and_nothing_else_and_no_password_is_an_argument(collect):
    """An updater with the same file may run on the same machine."""
    file = f'queue: {{url: "{STREAMS}&session_timeout=3s"}}\nlisten: ["unix:///a.sock"]\nadmin: {{listen: "127.0.0.1:9464"}}'
    code, err, settings = collect("--drain", OLD, file=file)
    assert (code, err) == (0, "")
    assert settings == DrainSettings(drain=OLD, queue=STREAMS)


@pytest.mark.parametrize(
    "old",
    [
        "memory://",
        "unix:///run/hints.sock",
        "redis://:sesame@127.0.0.1/0",
        "kafka://h:9092/t?acks=1",
        "sqlite:///x.db",
    ],
)
def test_what_cannot_be_drained_is_bad_usage(collect, old):
    code, err, _ = collect("--drain", old, "--queue", KAFKA)
    assert code == 2
    assert "argument --drain" in err
    assert "sesame" not in err


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f"{KAFKA}?group=shop", f"{KAFKA}?acks=all"),
        ("kafka://a:9092,b:9092/hints", "kafka://B:9092/hints"),
        (
            "redis://localhost?stream=hints&session_timeout=2s",
            "redis://:sesame@127.0.0.1:6379/0?stream=hints",
        ),
        ("redis+cluster://a:1,b:2?stream=hints", "redis+cluster://b:2,c:3?stream=hints&partitions=3"),
        ("sqlite:////tmp/../hints.db?partitions=3", "sqlite+aiosqlite:////hints.db"),
        ("postgresql+asyncpg://one:sesame@DB/hints", "postgresql://other@db:5432/hints?partitions=3"),
    ],
)
def test_a_queue_is_not_drained_into_itself(collect, old, new):
    code, err, _ = collect("--drain", old, "--queue", new)
    assert code == 78
    assert "are the same" in err
    assert "sesame" not in err


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (KAFKA, f"{KAFKA}2"),
        (STREAMS, STREAMS.replace("/3?", "/4?")),
        (STREAMS, f"{STREAMS}2"),
        ("sqlite:////old.db", "sqlite:////new.db"),
        ("postgresql://db/hints", "postgresql://db/hints?table=other"),
        ("postgresql://db/hints", "postgresql://db/other"),
        ("postgresql://db/hints", "postgresql://db:5433/hints"),
        (KAFKA, UPDATER),
    ],
)
def test_two_queues_of_one_server_are_two(collect, old, new):
    assert collect("--drain", old, "--queue", new)[0] == 0


@pytest.mark.parametrize("further", [("--listen", "unix:///a.sock"), ("--only", "p:"), ("--spill", "/spill")])
def test_a_drain_is_no_collector_of_applications(collect, further):
    code, err, _ = collect("--drain", OLD, "--queue", KAFKA, *further)
    assert code == 78
    assert "beside it" in err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--drain", OLD, "--queue", KAFKA], exits.UNFINISHED), (["--queue", KAFKA], exits.OK)],
    ids=["drain", "collector"],
)
def test_a_drain_that_is_stopped_before_it_has_begun_does_not_say_that_it_is_done(arguments, code):
    """A job of Kubernetes that ends with 0 counts as complete and is never started again."""
    program = (
        "import os, signal, sys\nfrom cacheupdater import cli\nfrom cacheupdater.cli import serve\n"
        "serve.serve = lambda _: os.kill(os.getpid(), signal.SIGTERM)\n"
        "cli.main(['collect', *sys.argv[1:]])"
    )
    assert subprocess.run([sys.executable, "-c", program, *arguments], check=False).returncode == code


def test_the_exit_code_of_a_stopped_drain_is_that_of_the_command_line():
    assert STOPPED_EXIT == exits.UNFINISHED
