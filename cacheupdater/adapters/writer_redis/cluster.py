"""The writer port over a Redis Cluster: each node that has some of a unit's keys gives a token and takes its writes.

The number that `token` returns stands for one token per node. A key is written only to the node that gave a token for it. If
the key's slot has moved meanwhile, that node redirects the write, and the answer is TOO_OLD: the key is loaded again. A key
and its floor share a slot, but two keys need not, so each key has a script call of its own. All calls of a node go in one
exchange, to all nodes at the same time. If a node is in trouble, only its own keys are answered as unavailable.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import asynccontextmanager, suppress
from functools import partial
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
from cacheupdater.adapters.writer_redis.scanning import pages
from cacheupdater.adapters.writer_redis.sessions import ASKING, TOKENS_MAX, one_call
from cacheupdater.adapters.writer_redis.slots import Member, Slots, View
from cacheupdater.core import answers, cache_url
from cacheupdater.core.answers import Answer, Result
from cacheupdater.errors import Faulty, Forbidden, Misconfigured, Unavailable
from cacheupdater_client.protocol import fence, lease

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence

    from cacheupdater.ports import Found
    from cacheupdater_client.protocol.lease import Grace

T = TypeVar("T")

WINDOW = 4  # chunks in one exchange with one node: at most 400 keys and 4 MiB
KEYS_MAX = WINDOW * fence.SCRIPT_KEYS_MAX
REDIRECTIONS = 3  # of an invalidation; if a slot moves more often, the caller tries again
_NOBODY = Answer(Result.UNAVAILABLE, why="no node of the Redis Cluster has the slot of this key")
_MOVING = Answer(Result.UNAVAILABLE, why="the slot of this key is on the move")


class _Way(NamedTuple):
    """The way to a key: its node, and whether the key has moved there ahead of its slot."""

    home: Member
    aside: bool


class Issued(NamedTuple):
    """The meaning of one token."""

    view: View
    tokens: Mapping[Member, int]
    refusals: Mapping[Member, str]  # why the other nodes gave no token
    until: float  # from then on the token is too old for every fence

    def way(self, entry: tuple[bytes, fence.Value, int]) -> _Way | Answer:
        """Where this entry may be written, or the answer if it cannot be. A node that lost the key will redirect the write."""
        key = entry[0]
        home = self.view.home(key)
        if not fence.fits(entry):
            return TOO_BIG
        if home is None:
            return _NOBODY
        if home in self.refusals:
            return Answer(Result.UNAVAILABLE, why=self.refusals[home])
        return _Way(home, key in self.view.aside) if home in self.tokens else answers.TOO_OLD


class ClusterWriter:
    """A cluster behind the fence, by URL: redis+cluster:// or rediss+cluster://, as `cache_url` says.

    `hold_off_ms` has the same meaning as in `RedisWriter`.
    """

    def __init__(self, url: str, *, hold_off_ms: int = 0) -> None:
        address = cache_url.parse(url)
        if not isinstance(address, cache_url.Cluster):
            raise Misconfigured("this writer needs the URL of a Redis Cluster: redis+cluster://host:6379")
        self._slots = Slots(address)
        self._hold_off_ms = hold_off_ms
        self._issued: OrderedDict[int, Issued] = OrderedDict()  # as in `sessions`
        self._closed = False

    async def token(self, keys: Sequence[bytes] = ()) -> int:
        """The time of each node that has some of the keys; without keys, of all nodes. One node that answers is enough."""
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
        """Forgets tokens that are too old, for each may keep a view of its own, and the oldest if there are too many."""
        while self._issued:
            oldest = next(iter(self._issued))
            if self._issued[oldest].until > now and len(self._issued) < TOKENS_MAX:
                break
            del self._issued[oldest]

    async def write(
        self, token: int, entries: fence.Entries, *, form: fence.Form = "type", replace: bool = False
    ) -> Sequence[Answer]:
        """Writes the entries; one answer per entry. It is TOO_OLD if the token is not good for the entry, or not any more."""
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
        self,
        keys: Sequence[bytes],
        forms: Mapping[bytes, fence.Form] = fence.NO_FORMS,
        *,
        only_ours: Collection[bytes] = (),
    ) -> Sequence[Answer]:
        """Removes the values and raises their floors. If it raises an error, some keys may be done: the caller repeats all."""

        def call(key: bytes) -> Sequence[Any]:
            return fence.invalidate_args(
                [key], hold_off_ms=self._hold_off_ms, forms=forms, only_ours=only_ours
            )

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
            again = await _together([self._invalidate_at(*each, call, said) for each in places.items()])
            left = [key for some in again for key in some]
        return [said[key] for key in keys]

    async def prolong(
        self, keys: Sequence[bytes], grace: Grace, form: fence.Form | None = None
    ) -> Sequence[bool | None]:
        """One more ttl for these values. None for the keys of a node in trouble, and for keys whose slot is on the move."""
        said: list[bool | None] = [None] * len(keys)
        for way, places in (await self._places(keys)).items():
            some = [keys[at] for at in places]
            calls = [lease.prolong_args(lease.NO_OWNER, [key], grace, form=form) for key in some]
            replies: Sequence[Any] = ()
            with suppress(Unavailable):
                async with self._reaching(way.home):
                    replies = await way.home.evaluate(lease.PROLONG, calls, asking=way.aside)
            for at, key, reply in zip(places, some, replies, strict=False):  # none of a node in trouble
                said[at] = self._has_more_time(way.home, key, reply)
        return said

    def _has_more_time(self, home: Member, key: bytes, reply: Any) -> bool | None:
        if self._is_redirection(home, key, reply):
            return None
        if reply == [lease.PROLONGED]:
            return True
        answer = self._removal(home, reply)
        if is_forbidden(answer.why):
            raise Forbidden(f"Redis refuses for now: {answer.why}")
        return None if answer.result is Result.UNAVAILABLE else False

    async def look(self, keys: Sequence[bytes], *, values: bool = False) -> Sequence[Found | None]:
        """What readers of these keys find now; None for the keys of a node in trouble."""
        said: list[Found | None] = [None] * len(keys)
        for way, some in (await self._places(keys)).items():
            with suppress(Unavailable):
                async with self._reaching(way.home):
                    calls = looks.calls([keys[at] for at in some], values=values)
                    replies = await way.home.evaluate(looks.LOOK, calls, asking=way.aside)
                for at, found in zip(some, looks.read(replies), strict=True):
                    said[at] = found
        return said

    async def _places(self, keys: Sequence[bytes]) -> Mapping[_Way, list[int]]:
        """The places of these keys, by the way to them. Keys of a slot without a node are missing."""
        self._check_open()
        view = await self._slots.view(keys)
        places: dict[_Way, list[int]] = {}
        for at, key in enumerate(keys):
            if home := view.home(key):
                places.setdefault(_Way(home, key in view.aside), []).append(at)
        return places

    async def command(self, key: bytes, *command: bytes) -> Any:
        """The reply to one command about this key, which may run twice."""
        for _ in range(REDIRECTIONS):
            self._check_open()
            view = await self._slots.view([key])
            if (home := view.home(key)) is None:
                raise Unavailable(_NOBODY.why)
            async with self._reaching(home):
                _, replies = await home.ask([ASKING, command] if key in view.aside else [command])
            if not self._is_redirection(home, key, replies[-1]):
                return self._plain(home, replies[-1])
        raise Unavailable(_MOVING.why)

    async def scan(self, prefix: bytes) -> AsyncIterator[Sequence[bytes]]:
        """The keys that begin so, of all nodes, page by page, some perhaps twice. A slot that moves meanwhile may be missed."""
        self._check_open()
        for home in (await self._slots.view()).homes():
            async for page in pages(partial(self._ask, home), prefix):
                yield page

    async def _ask(self, home: Member, command: Sequence[bytes]) -> Any:
        async with self._reaching(home):
            _, [reply] = await home.ask([command])
        return self._plain(home, reply)

    def _plain(self, home: Member, reply: Any) -> Any:
        if not isinstance(reply, redis_errors.ResponseError):
            return reply
        why = self._refusal(home, reply)
        raise Unavailable(why) if is_trouble(why) else Faulty(f"Redis does not accept this call: {why}")

    async def close(self) -> None:
        """Ends the connections; calls under way and later calls raise Unavailable."""
        self._closed = True
        await self._slots.close()

    # --- one node ---------------------------------------------------------------------------------------

    async def _token_of(self, home: Member) -> int | str:
        """The node's token, or why it gives none."""
        try:
            async with self._reaching(home):
                token = await home.token()
        except Unavailable as e:
            return str(e)
        return token if isinstance(token, int) else self._refusal(home, token)

    async def _write_to(
        self, way: _Way, token: int, entries: fence.Entries, *, form: fence.Form, replace: bool
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
                self._answer(way.home, key, reply, token)
                for (key, _, _), reply in zip(some, replies, strict=True)
            ]
        return said

    def _answer(self, home: Member, key: bytes, reply: Any, token: int) -> Answer:
        """The answer for one key that was to be written."""
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
        self,
        way: _Way,
        keys: list[bytes],
        call: Callable[[bytes], Sequence[Any]],
        said: dict[bytes, Answer],
    ) -> list[bytes]:
        """Invalidates keys at one node. Returns the redirected keys; the answers for the others go to `said`."""
        elsewhere = []
        for at in range(0, len(keys), KEYS_MAX):
            some = keys[at : at + KEYS_MAX]
            try:
                async with self._reaching(way.home):
                    replies = await way.home.evaluate(
                        fence.INVALIDATE, list(map(call, some)), asking=way.aside
                    )
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
        """The answer for one key that was to be removed."""
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
        """One exchange with a node. A node that fails is not asked for a moment, so that keys of other nodes do not wait."""
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
        """Whether the reply names another node for the key, which is then remembered."""
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
    """The results in order. A single call needs no task."""
    return [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls)


def _windows(entries: fence.Entries) -> Iterator[fence.Entries]:
    """The entries, cut so that each cut may go in one exchange."""
    sizes = list(map(len, fence.chunks(entries)))
    start = 0
    for at in range(0, len(sizes), WINDOW):
        end = start + sum(sizes[at : at + WINDOW])
        yield entries[start:end]
        start = end
