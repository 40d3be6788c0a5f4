"""The kinds of trouble that last, once, each with its subject and what it means.

`pipeline.notices` tells people of them, the gauge `troubles` counts those that stand, and the reference page lists them.
Whoever adds a kind adds it to the Literal and to `EVENTS`; a test compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

QueueEvent: TypeAlias = Literal["queue_missing", "fetch_failed", "commit_failed", "batch_skipped"]
"""What a queue can tell of."""

OurEvent: TypeAlias = Literal[
    "load_failed",
    "load_refused",
    "write_failed",
    "write_delayed",
    "removal_refused",
    "braked",
    "foreign",
    "unexpected",
    "redis_down",
    "fleet_down",
    "state_not_saved",
    "worker_down",
    "no_client",
    "no_hint",
    "nobodys",
    "elsewhere",
    "clock_off",
]

Event: TypeAlias = QueueEvent | OurEvent
"""In the log each is the field `event`, its subject the field `subject`."""

EVENTS: Mapping[str, str] = {
    "queue_missing": "no broker, no topic, or no right to see it",
    "fetch_failed": "packs cannot be read; the subject is the partition, or empty for all",
    "commit_failed": "what is finished cannot be told to the queue; the subject is the partition",
    "batch_skipped": "a batch of the topic was passed over: too large, or not to be read; the subject is the partition",
    "load_failed": "the source named by the subject does not answer, or not in time",
    "load_refused": "the statement, the rows or the values of this namespace are at fault",
    "write_failed": "Redis does not take some values of this namespace",
    "write_delayed": "the server of some keys of this namespace cannot take them now",
    "removal_refused": "changed keys of this namespace could be neither refreshed nor removed",
    "braked": "too many rows of this namespace vanished at once to be believed; nothing was deleted",
    "foreign": "values of this namespace are not what we would write, and are left alone",
    "unexpected": "a fault of ours, or of a loader of this namespace",
    "redis_down": "Redis does not answer",
    "fleet_down": "no exchange with the fleet; without one nothing of this source (of this namespace, where it is about a quota) is loaded",
    "state_not_saved": "the file of what was learned cannot be written",
    "worker_down": "this worker has ended and is started again",
    "no_client": "no client has been connected for 30 s",
    "no_hint": "clients are connected for 30 s, and none has ever sent a hint: their keys begin like no pattern",
    "nobodys": "more than a hundredth of the hints of a minute are of no namespace",
    "elsewhere": "most keys that readers find are not in our Redis: another server or database",
    "clock_off": "a client's clock is more than 5 s off ours, so that the age of its hints is not plain",
}
