"""The models as a JSON schema: for editors, for the Helm chart, and for other programs that check a configuration early.

`cacheupdater schema` prints it. It describes the text of the file, not the values that the models make of it: in a file a
duration is text with a unit. Wherever a value may stand, so may a variable, of which nothing more is known here.
`cacheupdater check` finds what a schema cannot say: two settings that contradict each other, or a column that is missing.

The patterns use only what ECMAScript, Python and RE2 (Helm) share.
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING

from pydantic.json_schema import GenerateJsonSchema

from cacheupdater.config import addresses, feeds, fields, models, queues, units
from cacheupdater.core import cache_url, depot_url
from cacheupdater_client.protocol import streams

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema

NAME = "^[A-Za-z][A-Za-z0-9_-]{0,62}$"
"""The form of the name of a source, a namespace or a fleet."""

_VARIABLE = r"\$\{"
_NUMBER = r"[0-9]{1,12}(\.[0-9]{1,6})?"
_PARTS = [f"({_NUMBER}{unit})" for unit in ("d", "h", "m", "s", "ms")]
# all parts are optional, so `minLength` below keeps out the empty text
_DURATION = f"^{'?'.join(_PARTS)}?$"
_DRIVERS = dict.fromkeys(driver for drivers in fields.DRIVERS.values() for driver in drivers)
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}


def _text(pattern: str, example: str) -> JsonSchemaValue:
    return {"type": "string", "pattern": f"{pattern}|{_VARIABLE}", "examples": [example]}


def _address(schemes: str, example: str) -> JsonSchemaValue:
    return _text(f"^({schemes.replace('+', '[+]')})://.", example)


_FORMS: Mapping[Callable[..., object], JsonSchemaValue] = {
    units.duration: {**_text(_DURATION, "1h30m"), "minLength": 2},
    units.rate: _text(f"^{_NUMBER}/[smh]$", "500/s"),
    units.database_time: _text(f"^{_NUMBER}(ms|s)/s$", "300ms/s"),
    units.factor: {"anyOf": [{"type": "number"}, _text(f"^{_NUMBER}$", "10")]},
    fields.jitter: _text(f"^{_NUMBER}%$", "10%"),
    fields.missing_share: _text(f"^{_NUMBER}%$", "10%"),
    fields.target: _text(f"^{_NUMBER}%$", "99%"),
    fields.switch: {
        "anyOf": [{"enum": ["off", "on", "verify", False, True]}, {"type": "string", "pattern": _VARIABLE}]
    },
    fields.key_pattern: {"type": "string", "minLength": 1, "maxLength": 100_000},
    fields.max_age: {**_text(_DURATION, "30s"), "minLength": 2},
    fields.cache_url: _address("|".join(sorted(cache_url.SCHEMES)), "redis://127.0.0.1:6379/0"),
    fields.source_url: _address("|".join(_DRIVERS), "postgresql+asyncpg://db:5432/shop"),
    queues.brokers_url: _text("^kafka://[^/?]+/?([?].+)?$", "kafka://kafka-1:9092"),
    queues.queue_url: _text(
        f"^memory://$|^kafka://[^/]+/.|^({'|'.join(map(re.escape, streams.SCHEMES))})://.+[?&]stream=."
        f"|^({'|'.join(map(re.escape, depot_url.SCHEMES))})://.",
        "kafka://kafka-1:9092/hints",
    ),
    addresses.listen_address: _text(
        "^(unix:///.|tcp://.+:[0-9]|http://.+:[0-9]|memory://.)", "tcp://127.0.0.1:7171"
    ),
    addresses.host_port: _text(r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}$", "127.0.0.1:9464"),
}
"""The form of the text that each validator accepts."""


_SECTIONS = (models.TopSection, models.SourceSection, models.DefaultsSection, models.NamespaceSection)


def schema() -> JsonSchemaValue:
    """The schema of the whole document."""
    _, defined = _OfTheFile(ref_template="#/$defs/{model}").generate_definitions(
        [(part, "validation", part.__pydantic_core_schema__) for part in _SECTIONS]
    )
    parts = {str(name): part for name, part in defined.items()}
    whole = parts.pop("TopSection")
    whole["properties"] |= {
        "sources": _named("SourceSection", "the databases, each with its budget"),
        "defaults": {"$ref": "#/$defs/DefaultsSection"},
        "namespaces": _named("NamespaceSection", "the keys to keep fresh"),
    }
    whole["required"] = [*whole["required"], "sources", "namespaces"]
    _describe(whole, parts)
    head = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "The configuration of cacheupdater",
    }
    return {**head, **whole, "$defs": dict(sorted(parts.items()))}


class _OfTheFile(GenerateJsonSchema):
    """The schema of the text in a file. pydantic's own describes the values that the models make of it."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        function = schema["function"]["function"]
        inner = schema["schema"]
        if function in {fields.short_ttl, fields.short_fail_safe}:
            return {"anyOf": [_FORMS[units.duration], self.generate_inner(inner)]}
        if function is fields.short_feed:
            names = _or_variable({"enum": list(feeds.SHORT)})
            return {"anyOf": [*names["anyOf"], self.generate_inner(inner)]}
        if function is fields.short_backlog:
            return {"anyOf": [*_whole({"type": "int"})["anyOf"], self.generate_inner(inner)]}
        if function is units.whole:
            return _whole(inner)
        return dict(_FORMS[function])  # a KeyError: a type without a form; say above how it is written

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])  # None is a missing setting; a file cannot say it

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        return _or_variable({"enum": list(schema["expected"])})

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        said = super().str_schema(schema)
        return {**said, "pattern": f"{said['pattern']}|{_VARIABLE}"} if "pattern" in said else said

    def field_title_should_be_set(self, schema: object) -> bool:
        del schema
        return False


def _whole(inner: core_schema.CoreSchema) -> JsonSchemaValue:
    """A number without a unit. YAML reads it as a number, and quotes do no harm."""
    if inner["type"] == "literal":
        return _or_variable({"enum": [each for one in inner["expected"] for each in (one, str(one))]})
    return {"anyOf": [{"type": "integer"}, _text("^[0-9]{1,12}$", "12")]}


def _or_variable(form: JsonSchemaValue) -> JsonSchemaValue:
    return {"anyOf": [form, {"type": "string", "pattern": _VARIABLE}]}


def _named(part: str, description: str) -> JsonSchemaValue:
    return {
        "type": "object",
        "description": description,
        "minProperties": 1,
        "propertyNames": {"pattern": NAME},
        "additionalProperties": {"$ref": f"#/$defs/{part}"},
    }


def _describe(whole: JsonSchemaValue, parts: Mapping[str, JsonSchemaValue]) -> None:
    """Takes descriptions from the sentences under the models' fields. Titles of sections are for programmers, and are removed."""
    said = _sentences()
    for name, part in [("TopSection", whole), *parts.items()]:
        part.pop("title", None)
        part.pop("description", None)
        for field, form in part["properties"].items():
            _bound(form)
            if (name, field) in said and "$ref" not in form:  # beside a $ref, draft 7 reads nothing
                form.setdefault("description", said[name, field])


def _bound(form: JsonSchemaValue) -> None:
    """The models bound what a text means; a schema can do so only where the file says a number."""
    bounds = {_BOUNDS[word]: form.pop(word) for word in list(form) if word in _BOUNDS}
    for one in form.get("anyOf", ()):
        if one.get("type") in {"integer", "number"}:
            one.update(bounds)


def _sentences() -> dict[tuple[str, str], str]:
    """The sentences under the sections' fields, by class and field."""
    said = {}
    for section in (*ast.parse(inspect.getsource(models)).body, *ast.parse(inspect.getsource(feeds)).body):
        if not isinstance(section, ast.ClassDef):
            continue
        for field, text in zip(section.body, section.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and _is_text(text):
                said[section.name, field.target.id] = inspect.cleandoc(ast.literal_eval(text.value))  # type: ignore[attr-defined]
    return said


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
