"""Logging of the service process: one line per record on stderr, safe to show.

`run` sets it up once. On a terminal the lines are for people; elsewhere they are JSON for a collector. Passwords in URLs are
hidden. Control characters are escaped, so that a key or an error text cannot forge a line. Only our own loggers follow
`--log-level`, for drivers print parameters and commands below `warning`. Workers of one parent share a stderr, so each line
of a worker has its number.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TextIO

from cacheupdater import masking
from cacheupdater.config.units import printable

_OURS = "cacheupdater"
_FIELDS = ("event", "subject", "state", "seconds", "times", "keys")  # set by `pipeline.notices`
_TEXT_MAX = 16_384  # characters of one message or traceback: collectors cut longer lines in two


def configure(level: str, stream: TextIO, *, worker: int | None = None) -> None:
    """Replaces every handler of the root logger. `worker`: the number of this process among the workers of its parent."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PlainFormatter(worker) if stream.isatty() else JsonFormatter(worker))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(_OURS).setLevel(level.upper())
    # aiokafka logs four times a second while a broker is away, and keys at debug; the queue reports what matters.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            **self._worker,
            "logger": record.name,
            "message": _clean(record.getMessage()),
            **{name: vars(record)[name] for name in _FIELDS if name in vars(record)},
        }
        if record.exc_info:
            line["exception"] = _clean(masking.trace(self.formatException(record.exc_info)))
        return json.dumps(line)


class PlainFormatter(logging.Formatter):
    """Time, level and message; a traceback keeps its lines."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = "" if worker is None else f"worker {worker}: "

    def format(self, record: logging.LogRecord) -> str:
        head = f"{_time(record)} {record.levelname.lower():<7} {self._worker}{record.name}: "
        trace = masking.trace(self.formatException(record.exc_info)).splitlines() if record.exc_info else []
        lines = [head + record.getMessage(), *trace]
        return "\n".join(printable(_clean(line)) for line in lines)


def _time(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def _clean(text: str) -> str:
    shown = masking.text(text)  # before it is cut: half a URL does not look like one
    return shown if len(shown) <= _TEXT_MAX else shown[:_TEXT_MAX] + "…"
