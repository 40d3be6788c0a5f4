"""A real updater in a process of its own, as an operator would start it: `python -m cacheupdater run -c FILE`.

Tests describe the configuration as a dict (JSON is YAML). They start, kill, freeze and stop the process, and read its pages and
its log. It never outlives the test process. In `make test` it starts as a fork (`warm`); a test that needs a start of its own
says `program=COMMAND`. `config` makes a small configuration with short times for stories.
"""

from __future__ import annotations

import json
import re
import select
import signal
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from suite.pace import PATIENCE_S

from cacheupdater.local.ports import free_port
from live import warm

ROOT = warm.ROOT
READY_S = 60.0  # two cold starts on a busy machine; usually 0.6 s
DRAINED_S = PATIENCE_S  # usually a second; the drain itself gives up after 10
HTTP_S = 30.0

_SAMPLE = re.compile(r"^cacheupdater_(\w+?)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

# a message of these events, if its cause is that no answer came in time
_LATE = re.compile(
    r"(redis_down|queue_missing|fetch_failed|commit_failed|load_failed|write_delayed|pauses_unread)\b"
    r".*(did not answer|does not answer|no answer|within [\d.]+ s|timeout|timed out)",
    re.DOTALL | re.IGNORECASE,
)

NAIVE = str(Path(__file__).with_name("naive_updater.py"))


def eventually(condition, within=PATIENCE_S, every=0.02):
    """The first true answer of `condition`. Fails with its last answer if there is none in time."""
    deadline = time.monotonic() + within
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {within:g} s; last answer: {answer!r}"
        time.sleep(every)
    return answer


def config(redis_url, sources, namespaces, *, every="300ms", missing="1s", partitions=2):
    """A configuration without `listen` and `admin`, which each Updater adds itself."""
    return {
        "version": 1,
        "queue": {"url": "memory://", "partitions": partitions},
        "cache": {"url": redis_url},
        "sources": sources,
        "defaults": {"refresh": {"every": every}, "missing": {"ttl": missing}, "ttl": "60s"},
        "namespaces": namespaces,
    }


class Updater:
    """One updater, however often it is started; its socket, port and log stay the same."""

    def __init__(self, folder, settings, *, program=None, environment=None, arguments=()):
        """`program` is what Python runs instead of the command. `arguments` follow its `run -c FILE`; `environment` is added
        to ours. A setting that is None is left out.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.socket = folder / "hints.sock"
        self.emit = f"unix://{self.socket}"
        self.port = free_port()
        self._program = program
        self._arguments = arguments
        self.file = folder / "cacheupdater.yaml"
        self._log = folder / "stderr.log"
        places = {"listen": [self.emit], "admin": {"listen": f"127.0.0.1:{self.port}"}}
        said = {name: value for name, value in {**places, **settings}.items() if value is not None}
        self.file.write_text(json.dumps(said, indent=1), "utf-8")
        self._environment = environment
        self._process = None

    @property
    def pid(self):
        return self._process.pid

    @property
    def running(self):
        return self._process is not None and self._process.poll() is None

    def start(self):
        """Starts it and returns when it accepts hints."""
        self.launch()
        self.wait_ready()
        return self

    def launch(self):
        """Starts it and returns at once."""
        with self._log.open("ab") as log:
            if self._program is None:
                self._process = warm.start(self._said(), err=log, environment=self._environment)
            else:
                program = (*self._program, *self._said())
                self._process = warm.start_python(program, err=log, environment=self._environment)

    def _said(self):
        return *self._asked(), *self._arguments

    def _asked(self):
        return "run", "-c", str(self.file)

    def wait_ready(self):
        """Waits for the ready line. Fails with the log if there is none."""
        out = self._process.stdout
        readable, _, _ = select.select([out], [], [], READY_S)
        line = out.readline() if readable else b""
        assert line.startswith(b"ready"), (
            f"no ready line, but {line!r} (waited for at most {READY_S:g} s); log:\n{self.log}"
        )
        return line.decode().split()[1:]

    def pause(self):
        """Freezes it, as a machine may freeze: connections stay, nothing answers."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        self._process.send_signal(signal.SIGCONT)

    def terminate(self):
        """Sends SIGTERM, so that it drains; `wait` returns how it ended."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self, within=DRAINED_S):
        """The exit code."""
        code = self._process.wait(within)
        self._process.stdout.close()
        return code

    def kill(self):
        """kill -9: nothing is drained. Does nothing when it does not run."""
        if self._process is not None:
            self._process.kill()
            self.wait()

    @property
    def log(self):
        """All whole lines of its stderr, over all its runs. The last line may be under way: a file grows page by page."""
        text = self._log.read_text("utf-8", "replace") if self._log.exists() else ""
        return text[: text.rfind("\n") + 1]

    @property
    def messages(self):
        """The log's messages at warning and above, each once."""
        lines = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return list(
            dict.fromkeys(each["message"] for each in lines if each["level"] not in {"info", "debug"})
        )

    @property
    def complaints(self):
        """The messages, without those that only say that another process answers late."""
        return [each for each in self.messages if not _LATE.match(each)]

    @property
    def troubles(self):
        """The present troubles by `/readyz`, in the words of the log. A second cause has no line of its own."""
        said = json.loads(self.page("/readyz")[1])["warnings"]
        return [f"{each['event']} {each['subject']}: {each['text']}" for each in said]

    def page(self, path):
        """Status and text of an admin page."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=HTTP_S) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as e:
            with e:
                return e.code, e.read().decode()

    def metric(self, name, **labels):
        """The sum of all samples of this metric that have these labels."""
        total = 0.0
        for found, spelled, value in _SAMPLE.findall(self.page("/metrics")[1]):
            if found == name and labels.items() <= dict(_LABEL.findall(spelled)).items():
                total += float(value)
        return total


class Updaters:
    """The updaters of one test. The test starts them; the fixture ends them and shows their logs."""

    def __init__(self, folder):
        self._folder = folder
        self._all = []

    def make(self, settings, **options):
        updater = Updater(self._folder / f"updater{len(self._all)}", settings, **options)
        self._all.append(updater)
        return updater

    def start(self, settings, **options):
        return self.make(settings, **options).start()

    def close(self):
        for number, updater in enumerate(self._all):
            updater.kill()
            # pytest shows it where a test failed
            print(f"--- log of updater {number} ---\n{updater.log[-8000:]}")
