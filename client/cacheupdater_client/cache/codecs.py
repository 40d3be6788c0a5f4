"""How a declared value becomes the bytes in Redis, and back.

The bytes are those that an updater writes for a namespace of the same encoding: both use `protocol/encoding`. The way back
follows the annotation of the loader's result, through msgspec: dataclasses, Structs, typed dicts and plain types; a pydantic
model by its own `model_validate`. `declared` makes one codec for each declared value, and refuses types that cannot be read
back.
"""

from __future__ import annotations

from inspect import Signature
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import msgspec

from cacheupdater_client.protocol.encoding import VALUE_BYTES_MAX, Encoding, encoder, form_of
from cacheupdater_client.protocol.errors import Inexpressible

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater_client.protocol.fence import Form
    from cacheupdater_client.protocol.spelling import Numbers, Times

UNREADABLE = (
    ValueError,
    TypeError,
)  # what decoders raise for bytes of another form; msgspec's errors are ValueErrors
NO_ANNOTATION = Signature.empty  # the type of a result that has no annotation

_CHOICES = ("json", "msgpack", "string", "raw")
_Decode: TypeAlias = "Callable[[bytes], object]"
Pair: TypeAlias = "tuple[Callable[[object], bytes], Callable[[bytes], object]]"
"""A codec of the application's own: `(encode, decode)`, such as `(pickle.dumps, pickle.loads)`."""


class Codec(NamedTuple):
    """Both directions. `decode` raises one of UNREADABLE for bytes that it cannot read."""

    encode: Callable[[object], bytes]
    decode: _Decode
    form: Form


class Format(NamedTuple):
    """The encoding of a declared value, with the settings that `value:` of a namespace has."""

    encoding: Encoding = "json"
    numbers: Numbers = "text"
    times: Times = "rfc3339"


def codec_of_pair(pair: Pair) -> Codec:
    """The codec that an application brings along. Redis holds its bytes as a string."""
    encode, decode = cast(
        "tuple[Callable[[object], object], _Decode]", pair
    )  # an application may return anything

    def encoded(value: object) -> bytes:
        try:
            spelled = encode(value)
        except Exception as e:
            raise Inexpressible(
                f"the codec raised {type(e).__name__} for a value of type {type(value).__name__}"
            ) from e
        if not isinstance(spelled, bytes) or len(spelled) > VALUE_BYTES_MAX:
            raise Inexpressible(f"the codec must return at most {VALUE_BYTES_MAX} bytes")
        return spelled

    def decoded(spelled: bytes) -> object:
        try:
            return decode(spelled)
        except Exception as e:  # of whatever type: the bytes cannot be read
            raise ValueError(f"the codec raised {type(e).__name__}") from e

    return Codec(encoded, decoded, "string")


def codec_of(form: Format, result: object) -> Codec:
    """The codec for results of this type. ValueError or TypeError if the encoding or the type does not fit a cache."""
    for name, said, choices in (
        ("encoding", form.encoding, _CHOICES),
        ("numbers", form.numbers, ("text", "plain")),
        ("times", form.times, ("rfc3339", "iso", "str")),
    ):
        if said not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}; got {said!r}")
    encode = cast("Callable[[object], bytes]", encoder(form.encoding, form.numbers, form.times))
    return Codec(encode, _decoder(form.encoding, result), form_of(form.encoding))


def _decoder(encoding: Encoding, result: object) -> _Decode:
    if encoding == "raw" and result not in (bytes, bytes | None, NO_ANNOTATION):
        raise TypeError("encoding raw holds bytes: annotate the loader's result as bytes")
    if encoding == "raw" or (encoding == "string" and result in (bytes, bytes | None)):
        return bytes
    if result is NO_ANNOTATION:
        return _UNTYPED[encoding]
    _check(result)
    kind = cast("type[object]", result)  # or a union or an alias, which mypy knows no type of
    if encoding == "json":
        return msgspec.json.Decoder(kind, dec_hook=_validated).decode
    if encoding == "msgpack":
        return msgspec.msgpack.Decoder(kind, dec_hook=_validated).decode
    return lambda spelled: msgspec.convert(spelled.decode(), kind, strict=False)


_UNTYPED: dict[Encoding, _Decode] = {
    "json": msgspec.json.Decoder().decode,
    "msgpack": msgspec.msgpack.Decoder().decode,
    "string": bytes.decode,
}


def _check(result: object) -> None:
    """TypeError if a type in here, however deep, can be read back neither by msgspec nor by itself."""
    seen: set[int] = set()  # types may hold themselves
    left: list[object] = [msgspec.inspect.type_info(result)]
    while left:
        part = left.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, msgspec.inspect.CustomType) and not hasattr(part.cls, "model_validate"):
            raise TypeError(
                f"a result of the type {part.cls.__name__} cannot be read back from the cache; use plain types, "
                "dataclasses, msgspec's Structs or pydantic models"
            )
        if isinstance(part, msgspec.Struct):  # as all that `inspect` returns
            left += (getattr(part, name) for name in part.__struct_fields__)
        elif isinstance(part, tuple):
            left += part


def _validated(kind: type, found: object) -> object:
    """For types that msgspec does not know: a pydantic model reads itself."""
    validate = cast("Callable[[object], object]", kind.model_validate)  # type: ignore[attr-defined]  # see _check
    return validate(found)
