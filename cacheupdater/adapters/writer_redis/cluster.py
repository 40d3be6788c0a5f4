"""The writer port over a Redis Cluster: each node that has some of a unit's keys gives a token and takes its writes.

The number that `token` returns stands for the tokens of the nodes asked. A key is written only to the node that was
asked for it: if the key's slot has moved meanwhile, that node says so, and the answer is too old, load again. A key and its
floor share a slot, other keys need not, so each key is a script of its own; all scripts of a node go in one exchange,
all nodes at once. A node in trouble costs its own keys a try, and no others: their answer is unavailable.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from redis import exceptions as redis_errors

from cacheupdater.adapters.writer_redis import looks
from cacheupdater.adapters.writer_redis.replies import (
    TOO_BIG,
    answer_of,
    is_forbidden,
    is_trouble,
    removal_of,
    said_by,
    text_of,
)
from cacheupdater.adapters.writer_redis.sessions import TOKENS_MAX, one_call
from cacheupdater.adapters.writer_redis.slots import Member, Slots, View
from cacheupdater.core import answers, cache_url
from cacheupdater.core.answers import Answer, Result
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater_client.protocol import fence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence

    from cacheupdater.ports import Entry, Found

T = TypeVar("T")

WINDOW = 4  # chunks in one exchange with one node: at most 400 keys and 4 MiB
KEYS_MAX = WINDOW * fence.SCRIPT_KEYS_MAX
REDIRECTIONS = 3  # of an invalidation; a slot that moves more often is tried again by the caller
_NOBODY = Answer(Result.UNAVAILABLE, why="no node of the Redis Cluster has the slot of this key")
_MOVING = Answer(Result.UNAVAILABLE, why="the slot of this key is on the move")


class _Way(NamedTuple):
    """To a key: its node, and whether the key went there ahead of its slot."""

    home: Member
    aside: bool


class Issued(NamedTuple):
    """What a token stands for."""

    view: View
    tokens: Mapping[Member, int]
    refusals: Mapping[Member, str]  # nodes that gave none, and why
    until: float  # then it is too old for every fence

    def way(self, entry: Entry) -> _Way | Answer:
        """Where this entry may be written, or why nowhere. A node that has the key no more will say so itself."""
        home = self.view.home(entry.key)
        if not fence.fits(entry):
            return TOO_BIG
        if home is None:
            return _NOBODY
        if home in self.refusals:
            return Answer(Result.UNAVAILABLE, why=self.refusals[home])
        return _Way(home, entry.key in self.view.aside) if home in self.tokens else answers.TOO_OLD


class ClusterWriter:
    """A cluster behind the fence, by URL: redis+cluster://, rediss+cluster://, as `cache_url` says.

    `hold_off_ms` as for one server.
    """

    def __init__(self, url: str, *, hold_off_ms: int = 0) -> None:
        address = cache_url.parse(url)
        if not isinstance(address, cache_url.Cluster):
            raise Misconfigured("this writer needs the URL of a Redis Cluster: redis+cluster://host:6379")
        self._slots = Slots(address)
        self._hold_off_ms = hold_off_ms
        self._issued: dict[int, Issued] = {}
        self._closed = False

    async def token(self, keys: Sequence[bytes] = ()) -> int:
        """The time of each node that has some of the keys; without keys, of all. One that answers is enough."""
        self._check_open()
        view = await self._slots.view(keys)
        homes = [home for home in set(map(view.home, keys)) if home] if keys else list(view.homes())
        said = dict(zip(homes, await _together([self._token_of(home) for home in homes]), strict=True))
        tokens = {home: token for home, token in said.items() if isinstance(token, int)}
        refusals = {home: why for home, why in said.items() if isinstance(why, str)}
        if not tokens:
            raise Unavailable(next(iter(refusals.values()), _NOBODY.why))
        token = max(tokens.values())
        while token in self._issued:
            token += 1000
        self._forget(now := asyncio.get_running_loop().time())
        self._issued[token] = Issued(view, tokens, refusals, now + fence.LOAD_AGE_S)
        return token

    def _forget(self, now: float) -> None:
        """What is too old, for each may keep a view of its own; and the oldest where there are too many."""
        while self._issued:
            oldest = next(iter(self._issued))
            if self._issued[oldest].until > now and len(self._issued) < TOKENS_MAX:
                break
            del self._issued[oldest]

    async def write(
        self, token: int, entries: Sequence[Entry], *, form: fence.Form = "type", replace: bool = False
    ) -> Sequence[Answer]:
        """One answer per entry. Too old is what the token is not, or no longer, good for."""
        said = [answers.TOO_OLD] * len(entries)
        issued = self._issued.get(token)
        if issued is None or self._closed:
            return said
        places: dict[_Way, list[int]] = {}
        for at, entry in enumerate(entries):
            way = issued.way(entry)
            if isinstance(way, Answer):
                said[at] = way
            else:
                places.setdefault(way, []).append(at)
        batches = [[entries[at] for at in some] for some in places.values()]
        writes = [
            self._write_to(way, issued.tokens[way.home], batch, form=form, replace=replace)
            for way, batch in zip(places, batches, strict=True)
        ]
        for some, answered in zip(places.values(), await _together(writes), strict=True):
            for at, answer in zip(some, answered, strict=True):
                said[at] = answer
        return said

    async def invalidate(
        self, keys: Sequence[bytes], forms: Mapping[bytes, fence.Form] = fence.NO_FORMS
    ) -> Sequence[Answer]:
        """Removes the values and raises their floors. Where it raises, some of the keys may be done: do all again."""
        left: list[bytes] = list(keys)
        said = dict.fromkeys(left, _MOVING)
        for _ in range(REDIRECTIONS):
            if not left:
                break
            self._check_open()
            view = await self._slots.view(left)
            places: dict[_Way, list[bytes]] = {}
            for key in left:
                if home := view.home(key):
                    places.setdefault(_Way(home, key in view.aside), []).append(key)
                else:
                    said[key] = _NOBODY
            again = await _together([self._invalidate_at(*each, forms, said) for each in places.items()])
            left = [key for some in again for key in some]
        return [said[key] for key in keys]

    async def look(self, keys: Sequence[bytes], *, values: bool = False) -> Sequence[Found | None]:
        """What readers of these keys find just now; of a node in trouble, nothing is known."""
        self._check_open()
        view = await self._slots.view(keys)
        places: dict[Member, list[int]] = {}
        for at, home in enumerate(map(view.home, keys)):
            if home is not None:
                places.setdefault(home, []).append(at)
        said: list[Found | None] = [None] * len(keys)
        for home, some in places.items():
            with suppress(Unavailable):
                async with self._reaching(home):
                    calls = looks.calls([keys[at] for at in some], values=values)
                    replies = await home.evaluate(looks.LOOK, calls)
                for at, found in zip(some, looks.read(replies), strict=True):
                    said[at] = found
        return said

    async def close(self) -> None:
        """Ends the connections; calls under way and later ones are unavailable."""
        self._closed = True
        await self._slots.close()

    # --- one node ---------------------------------------------------------------------------------------

    async def _token_of(self, home: Member) -> int | str:
        """Its token, or why it gives none."""
        try:
            async with self._reaching(home):
                token = await home.token()
        except Unavailable as e:
            return str(e)
        return token if isinstance(token, int) else self._refusal(home, token)

    async def _write_to(
        self, way: _Way, token: int, entries: Sequence[Entry], *, form: fence.Form, replace: bool
    ) -> list[Answer]:
        said: list[Answer] = []
        session = way.home.session_of(token)
        if session is None:
            return [answers.TOO_OLD] * len(entries)
        for some in _windows(entries):
            calls = [
                fence.commit_args(token, [entry], hold_off_ms=self._hold_off_ms, replace=replace, form=form)
                for entry in some
            ]
            try:
                async with self._reaching(way.home):
                    replies = await way.home.evaluate(fence.COMMIT, calls, session, asking=way.aside)
            except Unavailable as e:
                lost = Answer(Result.UNAVAILABLE, why=str(e))
                return said + [lost] * (len(entries) - len(said))
            said += [
                self._answer(way.home, entry.key, reply, token)
                for entry, reply in zip(some, replies, strict=True)
            ]
        return said

    def _answer(self, home: Member, key: bytes, reply: Any, token: int) -> Answer:
        """What became of one key."""
        if isinstance(reply, list):
            [outcome] = said_by(reply)
            if isinstance(outcome, fence.Failed) and is_trouble(outcome.text):
                return Answer(Result.UNAVAILABLE, why=f"{home}: {outcome.text}")
            return answer_of(outcome, token)
        if self._is_redirection(home, key, reply):
            return answers.TOO_OLD  # the token is another node's
        why = self._refusal(home, reply)
        return Answer(Result.UNAVAILABLE if is_trouble(why) else Result.FAILED, why=why)

    async def _invalidate_at(
        self, way: _Way, keys: list[bytes], forms: Mapping[bytes, fence.Form], said: dict[bytes, Answer]
    ) -> list[bytes]:
        """The keys that have to be looked for elsewhere; what became of the others goes to `said`."""
        elsewhere = []
        for at in range(0, len(keys), KEYS_MAX):
            some = keys[at : at + KEYS_MAX]
            calls = [fence.invalidate_args([key], hold_off_ms=self._hold_off_ms, forms=forms) for key in some]
            try:
                async with self._reaching(way.home):
                    replies = await way.home.evaluate(fence.INVALIDATE, calls, asking=way.aside)
            except Unavailable as e:
                said.update(dict.fromkeys(keys[at:], Answer(Result.UNAVAILABLE, why=str(e))))
                break
            for key, reply in zip(some, replies, strict=True):
                if self._is_redirection(way.home, key, reply):
                    elsewhere.append(key)
                else:
                    said[key] = self._removal(way.home, reply)
        return elsewhere

    def _removal(self, home: Member, reply: Any) -> Answer:
        """What became of one key."""
        if isinstance(reply, redis_errors.ResponseError):
            why = self._refusal(home, reply)
        else:
            [outcome] = said_by(reply)
            if not isinstance(outcome, fence.Failed):
                return removal_of(outcome)
            why = f"{home}: {outcome.text}"
        waits = is_trouble(why) and not is_forbidden(why)
        return Answer(Result.UNAVAILABLE if waits else Result.FAILED, why=why)

    @asynccontextmanager
    async def _reaching(self, home: Member) -> AsyncIterator[None]:
        """One exchange. A node that fails is left alone for a moment: its neighbours shall not wait for it."""
        now = asyncio.get_running_loop().time()
        if not home.may_be_asked(now):
            raise Unavailable(f"{home} failed a moment ago")
        try:
            async with one_call():
                yield
        except Unavailable as e:
            home.failed(asyncio.get_running_loop().time())
            self._slots.doubt()
            raise Unavailable(f"{home}: {e}") from e
        home.answered()

    def _is_redirection(self, home: Member, key: bytes, reply: Any) -> bool:
        """A reply that names another node is remembered."""
        if isinstance(reply, redis_errors.MovedError):
            self._slots.moved(key, reply, home)
        elif isinstance(reply, redis_errors.AskError):
            self._slots.gone_ahead(key, reply, home)
        else:
            return False
        return True

    def _refusal(self, home: Member, error: redis_errors.ResponseError) -> str:
        text = text_of(error)
        if text.startswith(("CLUSTERDOWN", "MASTERDOWN", "READONLY")):
            self._slots.doubt()
        return f"{home}: {text}"

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the writer is closed")


async def _together(calls: Sequence[Coroutine[None, None, T]]) -> list[T]:
    """The results in order; one call alone needs no task."""
    return [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls)


def _windows(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Cuts that may go in one exchange."""
    sizes = list(map(len, fence.chunks(entries)))
    start = 0
    for at in range(0, len(sizes), WINDOW):
        end = start + sum(sizes[at : at + WINDOW])
        yield entries[start:end]
        start = end
