"""Merges the pages of several workers into one: the page that the parent of `cacheupdater run --workers` serves.

`service.workers` fetches the page of each worker from its socket, and merges them with these functions. Samples keep their
names and get the label `worker`; the scraper may sum them. Sources are shown once per worker.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections import Counter
from typing import TYPE_CHECKING, cast

from cacheupdater.config.spelled import SECTIONS
from cacheupdater.errors import Unavailable
from cacheupdater.pipeline.looking import EXAMPLES
from cacheupdater.service.configuration import outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

OK = 200
BAD = 400  # a query that misses something
TEXT = "text/plain; version=0.0.4; charset=utf-8"
FETCH_S = 2.0  # a worker on this machine that takes longer has a worse problem
_SILENT = json.dumps(outcome("does not answer", taken=None))
_RESTARTS = "cacheupdater_worker_restarts_total"
_TROUBLES = "cacheupdater_troubles"
_DOWN = 'event="worker_down"'


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, within: float) -> None:
        super().__init__("localhost", timeout=within)
        self._path = path
        self._within = within

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._within)
        self.sock.connect(self._path)


def fetch(path: str, page: str, *, method: str = "GET", within: float = FETCH_S) -> tuple[int, bytes]:
    """Status and body of the worker's answer; (0, b"") if the worker does not answer."""
    connection = _UnixConnection(path, within)
    try:
        connection.request(method, page)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def merged_metrics(
    answers: Mapping[int, tuple[int, bytes]], restarts: Mapping[int, int], *, down: Collection[int] = ()
) -> bytes:
    """All metrics in the text format. Each family comes once: its help and type, then the samples of all answering workers.

    Only the parent knows which workers are `down`, by their numbers.
    """
    families: dict[str, tuple[list[str], list[str]]] = {}
    for number, text in _sound(answers):
        heads: list[str] = []
        samples: list[str] = []
        for line in text.decode().splitlines():
            if line.startswith("# "):
                heads, samples = families.setdefault(line.split(" ", 3)[2], ([], []))
                if line not in heads:
                    heads.append(line)
            elif line and not (line.startswith(_TROUBLES) and _DOWN in line):
                samples.append(_labelled(line, number))
    _, troubles = families.setdefault(_TROUBLES, ([f"# TYPE {_TROUBLES} gauge"], []))
    troubles += (f'{_TROUBLES}{{worker="{n}",{_DOWN}}} {float(n in down)}' for n in restarts)
    lines = [line for heads, samples in families.values() for line in (*heads, *samples)]
    return "\n".join([*lines, *_restart_lines(restarts), ""]).encode()


def _labelled(sample: str, number: int) -> str:
    """The sample with the label `worker`. A metric's value never holds a brace or a space; a label's value may."""
    name, brace, rest = sample.partition("{")
    if brace and " " not in name:
        return f'{name}{{worker="{number}",{rest}'
    name, _, value = sample.partition(" ")
    return f'{name}{{worker="{number}"}} {value}'


def _restart_lines(restarts: Mapping[int, int]) -> Iterable[str]:
    yield f"# HELP {_RESTARTS} Times that a worker has died and was started again."
    yield f"# TYPE {_RESTARTS} counter"
    for number, count in restarts.items():
        yield f'{_RESTARTS}{{worker="{number}"}} {count}'


def merged_freshness(
    answers: Mapping[int, tuple[int, bytes]], own: Sequence[object] = ()
) -> dict[str, object]:
    """The sources of all answering workers, named by worker, their feeds and hints, and the warnings: `own` ones are the parent's."""
    said = {number: json.loads(body) for number, body in _sound(answers)}
    return {
        **{
            part: [
                {**each, "name": f"{each['name']} ({number})"}
                for number, page in said.items()
                for each in page[part]
            ]
            for part in ("sources", "read_ages")
        },
        "warnings": [
            *own,
            *({**each, "worker": number} for number, page in said.items() for each in page["warnings"]),
        ],
        "lately": _summed_lately([page["lately"] for page in said.values()]),
        "feeds": _feeds(each for page in said.values() for each in page["feeds"]),
    }


def _summed_lately(pages: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """The hints of all workers in the last minute, with as many examples as one worker names."""
    sums: Counter[str] = Counter()
    examples: list[object] = []
    for page in pages:
        for name, figure in page.items():
            if isinstance(figure, list):
                examples += figure
            else:
                sums[name] += cast("int", figure)
    return {**sums, "examples": list(dict.fromkeys(examples))[:EXAMPLES]} if pages else {}


def _feeds(feeds: Iterable[dict[str, object]]) -> list[dict[str, object]]:
    """Each feed once, as the worker knows it that reads it."""
    found: dict[object, dict[str, object]] = {}
    for each in feeds:
        if each["reads"] or each["source"] not in found:
            found[each["source"]] = each
    return list(found.values())


def of_the_owner(answers: Mapping[int, tuple[int, bytes]]) -> dict[str, object]:
    """The answer of the worker that owns the key; else the first answer."""
    found: list[dict[str, object]] = [json.loads(body) for _, body in _sound(answers)]
    if not found:
        raise Unavailable("no worker answers")
    return next((each for each in found if each["ours"]), found[0])


def merged_quarantine(answers: Mapping[int, tuple[int, bytes]], most: int) -> dict[str, object]:
    """The quarantined keys of all answering workers, the oldest first, at most so many."""
    said = [json.loads(body) for _, body in _sound(answers)]
    keys = sorted((each for page in said for each in page["keys"]), key=lambda each: -each["since"])
    return {"keys": keys[:most], "total": sum(page["total"] for page in said)}


def summed(answers: Mapping[int, tuple[int, bytes]]) -> dict[str, object] | None:
    """What the workers did, together; None if a worker found the query bad."""
    if any(status == BAD for status, _ in answers.values()):
        return None
    said = [json.loads(body) for _, body in _sound(answers)]
    if not said:
        raise Unavailable("no worker answers")
    return {name: sum(page[name] for page in said) for name in said[0]}


def with_own_top(
    answers: Mapping[int, tuple[int, bytes]], own: Mapping[str, Mapping[str, object]]
) -> dict[str, object]:
    """A page of `configuration`: sources and namespaces of the first worker that answers, other settings of the parent.

    A reload changes sources and namespaces, and only workers follow it. A worker's other settings are its own alone.
    """
    theirs: dict[str, dict[str, object]] | None = next(
        (json.loads(body) for _, body in _sound(answers)), None
    )
    if theirs is None:
        raise Unavailable("no worker answers")
    return {
        part: {name: each for name, each in theirs[part].items() if _in_a_section(name)}
        | {name: each for name, each in said.items() if not _in_a_section(name)}
        for part, said in own.items()
    }


def _in_a_section(setting: str) -> bool:
    return setting.partition(".")[0] in SECTIONS


def merged_outcomes(answers: Mapping[int, tuple[int, bytes]]) -> dict[str, object]:
    """What became of a reload in all workers. Workers that say the same share a line."""
    lines: dict[str, list[str]] = {}
    said = {n: json.loads(body if status == OK else _SILENT) for n, (status, body) in answers.items()}
    for number, each in said.items():
        lines.setdefault(each["said"], []).append(str(number))
    text = "\n".join(f"worker {', '.join(numbers)}: {what}" for what, numbers in lines.items())
    taken = [each["taken"] for each in said.values()]
    restart = dict.fromkeys(name for each in said.values() for name in each["restart"])
    return outcome(text, taken=None if None in taken else all(taken), restart=restart)


def merged_warnings(bodies: Mapping[int, bytes]) -> list[dict[str, object]]:
    """The warnings of each worker's `/readyz`, whether the worker is ready or not."""
    return [
        {**each, "worker": number}
        for number, body in bodies.items()
        for each in _said(body).get("warnings", ())
    ]


def _sound(answers: Mapping[int, tuple[int, bytes]]) -> Iterable[tuple[int, bytes]]:
    """The answers with figures: an error's page holds none."""
    return ((number, body) for number, (status, body) in answers.items() if status == OK)


def _said(body: bytes) -> dict[str, list[dict[str, object]]]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
