"""Turns pydantic's errors into sentences that say what to write instead.

`load` calls it with the errors of a model. Each error becomes one problem of the document.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, get_args

from cacheupdater.config.section import Section
from cacheupdater.config.units import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from cacheupdater.config.document import Document
    from cacheupdater.config.problems import Path

_WORDS = {
    "model_type": "must be a section of `key: value` lines",
    "dict_type": "must be a section of `key: value` lines",
    "tuple_type": "must be a list, such as [one, two]",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "string_pattern_mismatch": "has the wrong form",
}
_FORMS = {
    "table": 'must be the name of a table, perhaps with its schema, such as "shop.products"',
    "state": "must be the path of a file, such as /var/lib/cacheupdater/learned",
    "python": 'must name a function as "module:function", such as "shop.loaders:banners"',
}


def explain(document: Document, model: type[Section], error: ValidationError, path: Path) -> None:
    """Notes every error of one section, which stands at `path`."""
    for detail in error.errors(include_url=False, include_input=True):
        loc = detail["loc"]
        unknown = detail["type"] == "extra_forbidden"
        full = (*path, *loc)
        at = full if detail["type"] == "missing" else document.known(full)
        document.refuse(at, _message(model, detail), key=unknown)


def _message(model: type[Section], detail: ErrorDetails) -> str:
    kind, loc, ctx = detail["type"], detail["loc"], detail.get("ctx", {})
    home = _model_at(model, loc[:-1]) if loc else model
    name = str(loc[-1]) if loc else ""
    if kind == "extra_forbidden":
        return f"unknown key{_suggestion(home, name)}"
    if kind == "missing":
        return f"is required: {home.model_fields[name].description}"
    if kind == "value_error":
        return str(ctx["error"])
    if kind == "literal_error":
        return _choice(str(detail["input"]), str(ctx["expected"]))
    if kind == "string_pattern_mismatch":
        return _FORMS.get(name, _WORDS[kind])
    said = detail["msg"].replace("Input should be", "must be").replace("Value should", "must")
    return _WORDS.get(kind, said) + (_known(_model_at(model, loc)) if kind == "model_type" else "")


def _choice(value: str, expected: str) -> str:
    choices = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
    close = get_close_matches(value, choices, n=1)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    quoted = expected.replace("'", '"')
    return f"{shown(value)} must be {quoted}{hint}"


def _suggestion(home: type[Section], name: str) -> str:
    """A key with almost this spelling, or the same key one section deeper."""
    close = get_close_matches(name, _keys(home), n=1)
    deeper = [f"{outer}.{name}" for outer, inner in _sections(home) if name in inner.model_fields]
    best = (deeper + close)[:1]
    return f'; did you mean "{best[0]}"?' if best else _known(home)


def _known(section: type[Section]) -> str:
    return f"; known here: {', '.join(_keys(section))}"


def _keys(section: type[Section]) -> Sequence[str]:
    return [*section.model_fields, *section.apart]


def _sections(home: type[Section]) -> Iterator[tuple[str, type[Section]]]:
    for name, field in home.model_fields.items():
        for part in _parts(field.annotation):
            if isinstance(part, type) and issubclass(part, Section):
                yield name, part


def _parts(annotation: object) -> Iterator[object]:
    """A type and all types that it is made of: `Annotated[Section, ...] | None` has the section in its second layer."""
    yield annotation
    for each in get_args(annotation):
        yield from _parts(each)


def _model_at(model: type[Section], loc: Path) -> type[Section]:
    for step in loc:
        model = dict(_sections(model)).get(str(step), model)
    return model
