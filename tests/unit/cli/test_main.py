"""The command line as a person or a supervisor uses it: texts, streams, exit codes, and the time of --help."""

from __future__ import annotations

import asyncio
import resource
import shlex
import socket
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from cacheupdater import __version__, packages
from cacheupdater.adapters.admin_http import AdminServer
from cacheupdater.cli import main
from cacheupdater_client.protocol import broker, wire

_HELP_BUDGET = 4.0  # times an interpreter that does nothing but parse and log; 2.3 measured
_HEAVY = ["sqlalchemy", "redis", "pydantic", "ruamel", "asyncio", "uvloop", "prometheus_client", "rich"]

_CONFIG = """\
version: 1
cache: {url: "redis://:c4n4ry@127.0.0.1:1/0"}
sources: {main: {url: "postgresql+asyncpg://u:c4n4ry@127.0.0.1:1/x", budget: 500/s}}
namespaces:
  product: {key: "product:{id:int}", load: {source: main, table: products}, quota: {rate: 5/s}}
  banner: {key: "banner:{slot}", load: {source: main, python: "json:loads"}}
listen: ["memory://shop"]
"""
_SHARED = _CONFIG.replace('listen: ["memory://shop"]\n', "")


def python(*args):
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=60, check=False)


def cacheupdater(*args, options=()):
    return python(*options, "-m", "cacheupdater", *args)


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "shop.yaml"
    file.write_text(_CONFIG)
    return file


def cpu_of_children():
    """Seconds that those which have ended have computed: others on the machine add nothing to it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_answers_at_once():
    ours, least = [], []
    for _ in range(9):
        start = cpu_of_children()
        python("-c", "import argparse, logging, typing")
        between = cpu_of_children()
        done = cacheupdater("--help")
        ours.append(cpu_of_children() - between)
        least.append(between - start)
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("run", "check", "freshness", "record", "plan", "demo"))
    assert min(ours) < _HELP_BUDGET * min(least)


@pytest.mark.parametrize(
    "args",
    [
        ("--help",),
        *((command, "--help") for command in ("run", "check", "freshness", "record", "plan", "demo")),
        ("--version",),
    ],
)
def test_help_loads_nothing_heavy(args):
    done = cacheupdater(*args, options=("-X", "importtime"))
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "argparse" in loaded
    assert not loaded.intersection(_HEAVY)
    assert done.returncode == 0


def test_version_is_printed():
    assert cacheupdater("--version").stdout == f"cacheupdater {__version__}\n"


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("walk",),
        ("run", "--fast"),
        ("demo", "--duration", "soon"),
        ("demo", "--duration", "0"),
        ("run", "--log-level", "all"),
        ("record",),
        ("record", "-o", "x", "--for", "60"),
        ("record", "-o", "x", "--for", "0s"),
        ("record", "-o", "x", "--for", "2h"),
        ("plan", "x"),
        ("plan", "--budget", "100/s"),
        ("plan", "x", "--budget", "100"),
        ("plan", "x", "--budget", "100/s,,200/s"),
        ("plan", "x", "--budget", "0/s"),
        ("plan", "x", "--budget", ",".join(f"{n}/s" for n in range(1, 22))),
    ],
)
def test_bad_usage_ends_with_2_and_keeps_stdout_clean(args, capsys):
    assert main(args) == 2
    printed = capsys.readouterr()
    assert "usage: cacheupdater" in printed.err
    assert not printed.out


def test_check_prints_what_the_configuration_amounts_to(config, capsys):
    assert main(["check", "-c", str(config)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{config}: OK\n")
    assert "product    product:{id:int}  main    json   300s  price    5/s" in printed
    assert "main    500/s   1s     -       0.02        5     1s" in printed
    assert "state   forgotten at the end\nfleet   none\n" in printed
    assert "Nothing was contacted" in printed
    assert "c4n4ry" not in printed


def test_check_prints_how_each_namespace_is_refreshed(config, capsys):
    text = _CONFIG.replace("quota: {rate: 5/s}", "refresh: {worth: 10, max_age: 1m}")
    text = text.replace("budget: 500/s", "db_time: 300ms/s, burst: 30s, freshness_target: 99.9%")
    config.write_text(
        text.replace('loads"}', 'loads"}, refresh: {every: 2s}') + "state: /tmp/learned\nfleet: eu\n"
    )
    assert main(["check", "-c", str(config)]) == 0
    printed = capsys.readouterr().out
    assert "price, worth 10, max_age 60s" in printed
    assert "every 2s" in printed
    assert "main    300ms/s  30s    99.9%" in printed
    assert "state   /tmp/learned\nfleet   eu\n" in printed


@pytest.mark.parametrize("command", ["check", "run"])
def test_bad_configuration_ends_with_78_and_names_the_line_on_stderr(config, command, capsys):
    config.write_text(_CONFIG.replace("budget: 500/s", "budget: 500"))
    assert main([command, "-c", str(config)]) == 78
    printed = capsys.readouterr()
    assert f"{config}:3:78: sources.main.budget:" in printed.err
    assert not printed.out
    assert "c4n4ry" not in printed.err


@pytest.mark.parametrize("command", ["check", "run"])
def test_sidecar_without_a_fleet_ends_with_78_and_the_sentence_that_mends_it(config, command, capsys):
    assert main([command, "--sidecar", "-c", str(config)]) == 78
    printed = capsys.readouterr()
    assert "fleet: is missing, and each of N sidecars would spend every budget and quota whole" in printed.err
    assert "write `fleet: shop`" in printed.err
    assert not printed.out


def test_sidecar_with_a_fleet_passes_check(config, capsys):
    config.write_text(_CONFIG + "fleet: shop\n")
    assert main(["check", "--sidecar", "-c", str(config)]) == 0
    assert "fleet   shop\n" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["check", "run"])
def test_sidecar_of_a_topic_ends_with_78_for_it_would_hear_nothing_of_its_application(
    config, command, capsys
):
    config.write_text(_SHARED + "fleet: shop\nqueue: {url: kafka://127.0.0.1:1/hints}\n")
    assert main([command, "--sidecar", "-c", str(config)]) == 78
    assert "queue.url: a sidecar takes hints from the socket" in capsys.readouterr().err


REFUSED = [
    (
        "redis://:c4n4ry@127.0.0.1:1/0",
        "redis://:c4n4ry@127.0.0.1:1/0?health_check_interval=soon",
        "2:14: cache.url: the Redis URL cannot be used",
    ),
    (
        "postgresql+asyncpg://",
        "mysql+aiomysql://",
        "3:23: sources.main.url: this source needs aiomysql: pip install aiomysql",
    ),
    (
        "127.0.0.1:1/x",
        "127.0.0.1:port/x",
        "3:23: sources.main.url: a source's url cannot be used (ValueError)",
    ),
    (
        "postgresql+asyncpg://u:c4n4ry@127.0.0.1:1/x",
        "sqlite+aiosqlite://",
        "3:23: sources.main.url: an SQLite source needs a file",
    ),
    (
        "json:loads",
        "no_such_module.sub:banners",
        "6:63: namespaces.banner.load.python: there is no module 'no_such_module' in the working directory",
    ),
    (
        "json:loads",
        "json.no_such:loads",
        "6:63: namespaces.banner.load.python: there is no module 'json.no_such' in json",
    ),
    (
        "json:loads",
        "json.decoder.sub:loads",
        "6:63: namespaces.banner.load.python: json.decoder is a module and holds no module 'sub'",
    ),
    (
        "version: 1",
        'version: 1\nqueue: {url: "kafka://h:1/t?sasl=SCRAM-SHA-512&username=u&password_file=/no/such/file"}',
        "2:14: queue.url: a file that it names cannot be used: ",
    ),
    (
        "version: 1",
        'version: 1\nqueue: {url: "redis://:c4n4ry@h:1/0?stream=hints&health_check_interval=soon"}',
        "2:14: queue.url: the Redis URL has an option that redis-py cannot read",
    ),
    (
        "version: 1",
        'version: 1\nqueue: {url: "sqlite:////no/such/folder/hints.db"}',
        "2:14: queue.url: the file /no/such/folder/hints.db cannot be written (No such file or directory): make its folder",
    ),
]


@pytest.mark.parametrize(("good", "bad", "message"), REFUSED)
def test_check_refuses_at_its_line_what_run_would_refuse(config, capsys, good, bad, message):
    assert good in _CONFIG
    config.write_text((_SHARED if "queue:" in bad else _CONFIG).replace(good, bad, 1))
    assert main(["check", "-c", str(config)]) == 78
    printed = capsys.readouterr()
    assert printed.err.startswith(f"{config}:{message}")
    assert printed.err.count(f"{config}:") == 1, "nothing that follows from it"
    assert "c4n4ry" not in printed.err
    assert not printed.out


@pytest.fixture
def taken():
    """A port of this machine that somebody has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


PLACES = [
    (
        "state: {}/nowhere/learned\n",
        "8:8: state: {}/nowhere/learned cannot be used: No such file or directory",
    ),
    ("state: {}\n", "8:8: state: {} is a directory; it must be the path of a file"),
    (
        "admin: {{listen: '127.0.0.1:{port}'}}\n",
        "8:17: admin.listen: cannot listen on 127.0.0.1:{port}: Address alr",
    ),
    (
        "listen: ['tcp://127.0.0.1:{port}']\n",
        "7:10: listen[0]: cannot listen on tcp://127.0.0.1:{port}: Address already in use; choose another port",
    ),
    (
        "listen: ['tcp://192.0.2.1:7171']\n",
        "7:10: listen[0]: cannot listen on tcp://192.0.2.1:7171: Cannot assign requested address",
    ),
    (
        "queue: {{url: 'kafka://h:1/t'}}\nlisten: ['http://127.0.0.1:{port}']\n",
        "8:10: listen[0]: cannot listen on http://127.0.0.1:{port}: Address already in use; choose another port",
    ),
    (
        "listen: ['unix:///proc/nowhere/hints.sock']\n",
        "7:10: listen[0]: cannot listen on unix:///proc/nowhere/hints.s",
    ),
    (
        "listen: ['unix://{}/shop.yaml']\n",
        "7:10: listen[0]: cannot listen on unix://{}/shop.yaml: {}/shop.yaml is th",
    ),
]


@pytest.mark.parametrize(("more", "message"), PLACES)
def test_check_refuses_places_that_run_could_not_have(config, taken, capsys, more, message):
    more, message = (each.format(*[config.parent] * 2, port=taken) for each in (more, message))
    config.write_text((_SHARED if "listen: [" in more else _CONFIG) + more)
    before = sorted(config.parent.iterdir())
    assert main(["check", "-c", str(config)]) == 78
    printed = capsys.readouterr()
    assert printed.err.startswith(f"{config}:{message}")
    assert not printed.out
    assert sorted(config.parent.iterdir()) == before


def test_check_leaves_no_trace_of_a_folder_that_run_will_make(config, capsys):
    config.write_text(_CONFIG.replace("memory://shop", f"unix://{config.parent}/a/b/hints.sock"))
    assert main(["check", "-c", str(config)]) == 0
    assert not (config.parent / "a").exists()


def test_check_of_a_configuration_whose_updater_runs_does_not_mind_its_port(config, taken, capsys):
    text = (
        _CONFIG.replace("memory://shop", f"unix://{config.parent}/s")
        + f"admin: {{listen: '127.0.0.1:{taken}'}}\n"
    )
    config.write_text(text)
    assert main(["check", "-c", str(config)]) == 78
    with socket.socket(socket.AF_UNIX) as running:
        running.bind(f"{config.parent}/s")
        running.listen()
        assert main(["check", "-c", str(config)]) == 0


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (wire.encode_hello(wire.Hello(12, [b"product:"])), 0),
        (b"SSH-2.0-OpenSSH_9.2\r\n", 78),
        (bytes(100_000), 78),
        (b"", 78),
    ],
)
def test_check_takes_only_a_port_that_says_hello_for_that_of_its_running_updater(config, capsys, said, code):
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as another:
        server.settimeout(10.0)  # for a check that does not ask
        config.write_text(_SHARED + f"listen: ['tcp://127.0.0.1:{server.getsockname()[1]}']\n")
        greeted = another.submit(_greet, server, said)
        assert main(["check", "-c", str(config)]) == code, capsys.readouterr().err
        greeted.result(timeout=20)


def _greet(server, said):
    connection, _ = server.accept()
    with connection:
        connection.sendall(said)


async def test_check_beside_a_running_updater_that_reads_kafka_does_not_mind_its_port(config, capsys):
    server = AdminServer(
        "127.0.0.1:0", metrics=lambda _: (b"", ""), ready=lambda: {"redis": False}, warnings=list
    )
    await server.start()
    config.write_text(
        _SHARED + f'queue: {{url: "kafka://h:1/t"}}\nadmin: {{listen: "127.0.0.1:{server.port}"}}\n'
    )
    assert await asyncio.to_thread(main, ["check", "-c", str(config)]) == 0, capsys.readouterr().err
    await server.close()


def test_check_warns_of_settings_that_do_nothing(config, capsys):
    config.write_text(_CONFIG.replace("budget: 500/s}", "budget: 500/s}, spare: {budget: 1/s}"))
    assert main(["check", "-c", str(config)]) == 0
    printed = capsys.readouterr()
    assert printed.err == (
        f"warning: {config}:3:86: sources.spare: has no effect: no namespace loads from it\n"
    )


def test_check_names_the_packages_of_a_queue_that_is_not_installed(config, capsys, monkeypatch):
    from cacheupdater.service import refusals

    monkeypatch.setattr(refusals, "find_spec", lambda name: None)
    config.write_text(_SHARED + 'queue: {url: "kafka://h:1/t"}\n')
    assert main(["check", "-c", str(config)]) == 78
    assert f"queue.url: needs aiokafka: pip install {broker.PACKAGES}" in capsys.readouterr().err


@pytest.mark.parametrize("said", ["replication", "{replication: {slot: other}}"])
def test_check_names_the_package_of_a_feed_that_is_used_and_not_installed(config, capsys, monkeypatch, said):
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    unused = _CONFIG.replace("budget: 500/s}", f"budget: 500/s, changes: {said}}}")
    config.write_text(unused)
    assert main(["check", "-c", str(config)]) == 0, capsys.readouterr().err
    config.write_text(unused.replace("quota: {rate: 5/s}", "changes: [{table: products}]"))
    assert main(["check", "-c", str(config)]) == 78
    printed = capsys.readouterr().err
    assert "3:94: sources.main.changes: needs psycopg2: pip install 'psycopg2-binary>=2.9'" in printed


def test_missing_configuration_says_how_to_name_one(tmp_path):
    done = cacheupdater("check", "-c", str(tmp_path / "none.yaml"))
    assert done.returncode == 78
    assert "name the configuration with -c FILE or CACHEUPDATER_CONFIG" in done.stderr


def test_configuration_comes_from_the_environment_unless_named(config, monkeypatch):
    monkeypatch.setenv("CACHEUPDATER_CONFIG", str(config))
    assert cacheupdater("check").stdout.startswith(f"{config}: OK")
    assert cacheupdater("check", "-c", "other.yaml").returncode == 78


def test_example_passes_check_as_it_stands(capsys):
    example = Path(__file__).parents[3] / "examples" / "cacheupdater.yaml"
    assert main(["check", "--config", str(example)]) == 0
    assert "basket" in capsys.readouterr().out


_WITHOUT_PYDANTIC = """
import sys
sys.modules["pydantic"] = None
from cacheupdater.cli import main
raise SystemExit(main(sys.argv[1:]))
"""


def test_missing_extra_says_what_to_install(config):
    done = python("-c", _WITHOUT_PYDANTIC, "check", "-c", str(config))
    assert done.returncode == 78
    assert f"the updater needs more packages; run: pip install {packages.UPDATER}" in done.stderr


def test_the_requirements_that_a_message_names_are_those_of_the_extra():
    """Whoever installed from a clone or a wheel may have no index with our extras: the packages are on any."""
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]

    def required(extra):
        """Without those that only some platforms have, such as uvloop: the updater runs without them."""
        return {each for each in map(Requirement, extras[extra]) if each.marker is None}

    def named(message):
        return set(map(Requirement, shlex.split(message)))

    assert named(packages.UPDATER) == required("updater")
    assert named(broker.PACKAGES) == named(packages.lacking("aiokafka")) == required("kafka")
    for extra, module in (("sqlite", "aiosqlite"), ("postgres", "asyncpg"), ("replication", "psycopg2")):
        assert named(packages.lacking(module)) == required(extra)
    assert named(packages.lacking("rich")) <= required("demo")


def test_each_module_of_the_updater_leads_to_all_its_packages_and_a_strange_one_to_none():
    assert {packages.lacking(each) for each in ("pydantic_core", "ruamel", "sqlalchemy")} == {
        packages.UPDATER
    }
    assert packages.lacking("shop") is None


def test_demo_gets_its_arguments(monkeypatch):
    import types

    seen = {}
    fake = types.SimpleNamespace(run=lambda **given: seen.update(given) or 3)
    monkeypatch.setitem(sys.modules, "cacheupdater.demo", types.ModuleType("cacheupdater.demo"))
    monkeypatch.setitem(sys.modules, "cacheupdater.demo.main", fake)
    assert main(["demo", "--duration", "15", "--seed", "7", "--plain"]) == 3
    assert seen == {"duration": 15.0, "seed": 7, "plain": True}


_HURRIED = """
import sys
from cacheupdater.adapters.listener_stream import socket_file
from cacheupdater.cli import main
socket_file.LOCK_S = 0.1
raise SystemExit(main(sys.argv[1:]))
"""


def test_run_that_finds_the_lock_of_its_socket_taken_ends_with_70(tmp_path):
    """Whoever restarts it gives the other the time that it needs; with 78 it would stay down."""
    (tmp_path / ".hints.sock.lock").touch(0o644)  # as if another's
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"version: 1\nlisten: ['unix://{tmp_path}/hints.sock']\ncache: {{url: 'redis://127.0.0.1:1'}}\n"
        "sources: {main: {budget: 1/s}}\n"
        "namespaces: {item: {key: 'item:{id:int}', load: {source: main, python: 'json:loads'}}}\n"
    )
    done = python("-c", _HURRIED, "run", "-c", str(file))
    assert (done.returncode, done.stdout) == (70, "")
    assert f"listen: {tmp_path}/.hints.sock.lock is another user's" in done.stderr
