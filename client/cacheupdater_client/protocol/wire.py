"""Everything that both ends must agree on: packs, frames, the hello, and which partition a key belongs to.

The client's sender writes packs and the updater's intake reads them. A program in any language may do either:
`docs/reference/wire.md` describes the format, and `tests/contract/golden/` holds records that must never change. Plain bytes
in, plain bytes out: no socket, no clock. Readers ignore elements that they do not know, so a newer writer may append some. A
change that an older reader could misread gets a new version number, which older readers refuse.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VERSION = 1
KEY_BYTES_MAX = 1024  # longer keys are refused before they are sent: a cache key of 1 KiB is a mistake
PACK_HINTS_MAX = 1000  # above 500 a pack gains no speed; bounds what one message can cost the updater
PACK_BYTES_MAX = 256 * 1024  # well below Kafka's default record limit of 1 MiB
FRAME_BYTES_MAX = PACK_BYTES_MAX + 1024  # a pack and its header; a larger length announces a broken peer

TOUCH, MISS, CHANGE = 0, 1, 2
SET = 3  # a change whose command has just set the value; its pack is one of changes, with a mark in the sixth element
CHANGES = frozenset({CHANGE, SET})
TOKENS, MARK = "tokens", "set"  # names in the sixth element: see Pack


class Malformed(ValueError):
    """These bytes are not a pack or frame that we can read. `reason` is a short word for a counter."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class Pack(NamedTuple):
    """1 to 1000 hints of one kind. An empty `counts` means that each key was hinted once.

    `tokens` of touches: the readers of these keys have filled them, each by a load with this fence token. Of misses: the
    readers have looked at these times, found nothing, and wait for an updater. Of changes: a feed told them, and nobody has
    removed their values; each was committed at this time (microseconds since 1970). Mostly there are none.

    SET is a kind of its own here only. To an updater it is a change. If the updater cannot load the key, the value may stay:
    the application has just put it there.
    """

    kind: int
    emitted_ms: int
    keys: list[bytes]
    counts: list[int]
    tokens: Sequence[int] = ()


class Hello(NamedTuple):
    """The updater's first message on every connection. No prefixes means: every key.

    `clients`: for so many clients a sender may stand at most. An updater that says no number counts each sender as one.
    """

    partitions: int
    prefixes: list[bytes]
    clients: int = 1


class _More(msgspec.Struct):
    """What either side of a stream may say beside the rest. Unknown names are ignored."""

    clients: Annotated[int, Meta(ge=1)] = 1


_Key = Annotated[bytes, Meta(min_length=1, max_length=KEY_BYTES_MAX)]
_Keys = Annotated[list[_Key], Meta(min_length=1, max_length=PACK_HINTS_MAX)]
_Kind = Annotated[int, Meta(ge=TOUCH, le=CHANGE)]
_Body = tuple[int, _Kind, int, _Keys, list[Annotated[int, Meta(ge=1)]]]

_Tokens = list[Annotated[int, Meta(ge=0)]]  # msgpack has no larger integers than 64 bits

_encoder = msgspec.msgpack.Encoder()
# all limits are checked in C: 29 ns a key, 85 with checks in Python
_decode_body = msgspec.msgpack.Decoder(_Body)
_decode_any = msgspec.msgpack.Decoder()
_decode_more = msgspec.msgpack.Decoder(_More)
_BASE64_HEADERS = (*(bytes([0xA0 + size]) for size in range(4, 32, 4)), b"\xd9", b"\xda", b"\xdb")
_CHANGE_HEAD = bytes([VERSION, CHANGE])  # as every client encodes them
_SET = {MARK: True}
_TOKENS_NAME = TOKENS.encode()
_FIVE_ELEMENTS = b"\x95"  # how a pack without tokens begins
_READ_HEADS = frozenset([bytes([0x96, VERSION, TOUCH]), bytes([0x96, VERSION, MISS])])  # reads with tokens
_URGENT_HEADS = frozenset([_CHANGE_HEAD, bytes([VERSION, MISS])])
_TIME_AT = 3  # behind version and kind, where these take a byte each
_TIME_BYTES = {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}  # by the first of them; a small time takes one
_SMALL_TIME_MAX = 0x7F
_LONG_ARRAY, _SHORT_ARRAY_MAX = 0xDC, 15  # an array of more elements has a header of three bytes
# errors of msgspec for arbitrary bytes: its own, and those for text that is not UTF-8 and for keys that do not hash
_UNREADABLE = (msgspec.MsgspecError, RecursionError, ValueError, TypeError, OverflowError)


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that owns a key, the same in every language."""
    return zlib.crc32(key) % partitions


def encode_pack(
    kind: int,
    emitted_ms: int,
    keys: Sequence[bytes],
    counts: Sequence[int] = (),
    *,
    tokens: Sequence[int] = (),
) -> bytes:
    """One pack. The caller must keep the limits; `decode_pack` checks them."""
    if tokens:
        return _encoder.encode((VERSION, kind, emitted_ms, keys, counts, {TOKENS: tokens}))
    if kind == SET:
        return _encoder.encode((VERSION, CHANGE, emitted_ms, keys, counts, _SET))
    return _encoder.encode((VERSION, kind, emitted_ms, keys, counts))


def decode_pack(payload: bytes) -> Pack:
    """The pack in `payload`, or Malformed. Unknown further elements are ignored."""
    if len(payload) > PACK_BYTES_MAX:
        raise Malformed("too_large", f"{len(payload)} bytes")
    tokens: Sequence[int] = ()
    try:
        version, kind, emitted_ms, keys, counts = _decode_body.decode(payload)
    except _UNREADABLE:
        (version, kind, emitted_ms, keys, counts), tokens = _decode_tolerant(payload)
    if version != VERSION:
        raise Malformed("unknown_version", str(version))
    if counts and len(counts) != len(keys):
        raise Malformed("garbage", f"{len(counts)} counts for {len(keys)} keys")
    if not _all_bin(payload, counts):
        raise Malformed("garbage", "keys must be msgpack bin")
    if tokens and len(tokens) != len(keys):
        raise Malformed("garbage", f"{len(tokens)} tokens for {len(keys)} keys")
    return Pack(kind, emitted_ms, keys, counts, tokens or ())


def is_change(payload: bytes) -> bool:
    """Whether a pack holds changes, by two of its bytes. For code that orders packs without decoding them."""
    return payload[1:3] == _CHANGE_HEAD


def is_urgent(payload: bytes) -> bool:
    """Whether a pack holds changes or misses, by the same two bytes."""
    return payload[1:3] in _URGENT_HEADS


def as_announced(payload: bytes) -> bytes:
    """A pack of changes without tokens: only feeds give a change a time. Bytes that are no pack stay as they are.

    For code that takes packs from any sender. Most packs are known to have no such tokens by their first bytes, or because the
    name stands nowhere.
    """
    if payload[:1] == _FIVE_ELEMENTS or payload[:3] in _READ_HEADS or _TOKENS_NAME not in payload:
        return payload
    try:
        pack = decode_pack(payload)
    except Malformed:
        return payload
    if pack.kind != CHANGE or not pack.tokens:
        return payload
    return encode_pack(pack.kind, pack.emitted_ms, pack.keys, pack.counts)


def _all_bin(payload: bytes, counts: Sequence[int]) -> bool:
    """Whether every key is a msgpack bin. msgspec reads a msgpack str as base64, which is not the key that was meant.

    A str that reads as base64 has one of ten headers. The keys of most packs have none of these bytes. The keys of other packs
    are decoded once more, without a declared type.
    """
    start = _keys_at(payload)
    # behind the keys come the counts: their header, and a byte for each at least
    end = len(payload) - len(counts) - (3 if len(counts) > _SHORT_ARRAY_MAX else 1)
    for header in _BASE64_HEADERS:  # a loop: `any` with a generator took 1.2 to 1.7 times as long
        if payload.find(header, start, end) >= 0:
            return set(map(type, _decode_any.decode(payload)[3])) == {bytes}
    return True


def _keys_at(payload: bytes) -> int:
    """No key begins before this place. The bytes of the time, and the number of keys, may look like headers.

    A sender may spell version and kind longer than needed. Then the time stands later, and so do the keys.
    """
    first = payload[_TIME_AT]
    if first > _SMALL_TIME_MAX and first not in _TIME_BYTES:  # no client sends a negative time
        return 0
    start = _TIME_AT + _TIME_BYTES.get(first, 1)
    return start + (3 if payload[start] == _LONG_ARRAY else 1)


def _decode_tolerant(payload: bytes) -> tuple[_Body, Sequence[int]]:
    """The way in for packs with a sixth element: tells a newer version or further elements from plain garbage."""
    try:
        parts = _decode_any.decode(payload)
    except _UNREADABLE as e:
        raise Malformed("garbage", str(e)) from e
    if not isinstance(parts, list) or not parts or type(parts[0]) is not int:
        raise Malformed("garbage", "not an array that begins with a version")
    if parts[0] != VERSION:
        raise Malformed("unknown_version", str(parts[0]))
    try:
        version, kind, *rest = msgspec.convert(parts[:5], _Body)
        more = parts[5] if len(parts) > 5 and isinstance(parts[5], dict) else {}
        tokens: Sequence[int] = msgspec.convert(more.get(TOKENS, []), _Tokens)
    except msgspec.ValidationError as e:
        raise Malformed("garbage", str(e)) from e
    if kind == CHANGE and more.get(MARK) is True and not tokens:
        kind = SET
    return (version, kind, *rest), tokens


# --- frames of a stream (unix://, tcp://) ---------------------------------------------------------------
# client -> updater:  u32 length | u32 partition | pack            (length counts what follows it)
#                     u32 length | u32 NO_PARTITION | msgpack map  (for how many clients a collector stands)
# updater -> client:  u32 length | msgpack array, once: the hello
#                     u32 0      | u64 frames accepted so far       (an acknowledgement)

_HEADER = struct.Struct(">II")
FRAME_HEAD_BYTES = _HEADER.size
_LENGTH = struct.Struct(">I")
_ACK = struct.Struct(">IQ")
NO_PARTITION = 2**32 - 1  # a frame for this partition holds no pack


def encode_frame(partition: int, pack: bytes) -> bytes:
    """The frame of a pack, for a stream."""
    return _HEADER.pack(len(pack) + 4, partition) + pack


def encode_clients(clients: int) -> bytes:
    """The frame by which a collector says for how many clients it stands. No acknowledgement counts this frame."""
    return encode_frame(NO_PARTITION, _encoder.encode(_More(clients)))


def decode_clients(body: bytes) -> int:
    """For how many clients the sender of this frame stands, or Malformed."""
    try:
        return _decode_more.decode(body).clients
    except _UNREADABLE as e:
        raise Malformed("garbage", str(e)) from e


def encode_hello(hello: Hello) -> bytes:
    """The first frame of the updater."""
    more = (_More(hello.clients),) if hello.clients > 1 else ()
    body = _encoder.encode((VERSION, hello.partitions, hello.prefixes, *more))
    return _LENGTH.pack(len(body)) + body


def decode_hello(body: bytes) -> Hello:
    """The hello in `body` (without its length), or Malformed."""
    try:
        parts = _decode_any.decode(body)
        version = parts[0] if isinstance(parts, list) else None
        partitions, prefixes = (
            msgspec.convert(parts[1:3], tuple[int, list[bytes]]) if version == VERSION else (0, [])
        )
        said = next((each for each in parts[3:4] if isinstance(each, dict)), {})
        clients = msgspec.convert(said, _More).clients
    except (*_UNREADABLE, IndexError) as e:
        raise Malformed("garbage", str(e)) from e
    if version != VERSION:
        raise Malformed("unknown_version", str(version))
    if partitions < 1:
        raise Malformed("garbage", "no partitions")
    return Hello(partitions, prefixes, clients)


def encode_ack(accepted: int) -> bytes:
    """How many frames of this connection the updater has put on its queue."""
    return _ACK.pack(0, accepted)


class FrameReader:
    """Cuts the bytes that arrive on the updater's side of a stream into (partition, pack) frames."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The frames completed by `data`. Malformed ends the connection, for the frames' boundaries are lost."""
        self._data += data
        at, size = 0, len(self._data)
        try:
            while size - at >= _HEADER.size:
                length, partition = _HEADER.unpack_from(self._data, at)
                if not 5 <= length <= FRAME_BYTES_MAX:
                    raise Malformed("frame_out_of_range", str(length))
                end = at + 4 + length
                if end > size:
                    break
                yield partition, bytes(self._data[at + _HEADER.size : end])
                at = end
        finally:
            del self._data[:at]


class ReplyReader:
    """Cuts the bytes that arrive on the client's side of a stream: first the hello, then acknowledgements."""

    __slots__ = ("_data",)

    HELLO_BYTES_MAX = 4 * 1024 * 1024  # thousands of namespaces with long prefixes

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Hello | int]:
        """Hello or the number of accepted frames, as they complete."""
        self._data += data
        while len(self._data) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data)
            if length > self.HELLO_BYTES_MAX:
                raise Malformed("frame_out_of_range", str(length))
            end = 12 if length == 0 else 4 + length
            if len(self._data) < end:
                return
            frame = bytes(self._data[:end])
            del self._data[:end]
            yield _ACK.unpack(frame)[1] if length == 0 else decode_hello(frame[4:])
