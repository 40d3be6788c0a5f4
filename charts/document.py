"""What is made of a chart's values.yaml: its README's table and values.schema.json, which `make chart-docs` writes. It also
copies the templates that both charts need from the chart into the library.

A value's sentence is the comment `# -- …` before it, so that nobody edits two places. Types come from the defaults, and
from schema.yaml where a default does not say enough; `config` has the configuration's own schema. Unknown names are
refused everywhere. Names that others use for the same are let through, so that a template can tell the right one.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from ruamel.yaml import YAML

from cacheupdater.config.schema import schema as of_the_configuration

CHART = Path(__file__).parent / "cacheupdater"
LIBRARY = Path(__file__).parent / "cacheupdater-sidecar"
SHARED = "templates/_shared.tpl"  # of both charts; neither depends on the other
BEGIN, END = "<!-- made of values.yaml: make chart-docs -->", "<!-- the end of what is made -->"
# Helm repeats a value that its schema refuses. What may hold a password passes, and the templates refuse it without repeating it
_HIDDEN = r"|@|[?&][A-Za-z_]*(password|passwd|pwd|secret|token)="
_KEY = re.compile(r"^( *)([A-Za-z][A-Za-z0-9_]*):")


def values() -> dict:
    return YAML(typ="safe").load((CHART / "values.yaml").read_text())


def sentences() -> dict[str, str]:
    """By the path of the value."""
    said, path, waiting = {}, [], ""
    for line in (CHART / "values.yaml").read_text().splitlines():
        if line.lstrip().startswith("# -- "):
            waiting = line.lstrip().removeprefix("# -- ")
        elif found := _KEY.match(line):
            path[len(found[1]) // 2 :] = [found[2]]
            if waiting:
                said[".".join(path)] = waiting
            waiting = ""
    return said


def table() -> str:
    rows = ["| value | default | meaning |", "| --- | --- | --- |"]
    said = sentences()
    for path, sentence in said.items():
        default = values()
        for name in path.split("."):
            default = default[name]
        rows += [f"| `{path}` | {_shown(default)} | {sentence} |"]
        if isinstance(default, dict) and not path.endswith("Context"):
            rows += [f"| `{path}.{name}` | {_shown(one)} | |" for name, one in _leaves(default, path, said)]
    return "\n".join(rows)


def _leaves(tree: dict, path: str, said: dict[str, str]):
    """Those without a sentence of their own."""
    for name, one in tree.items():
        if f"{path}.{name}" in said:
            continue
        if isinstance(one, dict) and one and not path.endswith(("Probe", "resources", "labels")):
            yield from ((f"{name}.{inner}", each) for inner, each in _leaves(one, f"{path}.{name}", said))
        else:
            yield name, one


def _shown(default: object) -> str:
    if isinstance(default, dict) and default:
        return ""
    text = json.dumps(default)
    return f"`{text}`"


def readme() -> str:
    """The committed page with a new table."""
    text = (CHART / "README.md").read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def schema() -> dict:
    """Of values.yaml."""
    own = YAML(typ="safe").load((CHART / "schema.yaml").read_text())
    used = set()
    whole = _object(values(), "", own, used)
    if own.keys() - used:
        raise SystemExit(f"schema.yaml speaks of what values.yaml does not have: {sorted(own.keys() - used)}")
    config = of_the_configuration()
    parts = config.pop("$defs")
    config.pop("$schema")
    parts["AdminSection"].pop("required")  # the chart sets its address
    for part in parts.values():
        if url := part.get("properties", {}).get("url"):
            url["pattern"] += _HIDDEN
    moved = re.findall(r'^  "(\w+)" "([\w.]+)"', (CHART / "templates/_moved.tpl").read_text(), re.MULTILINE)
    whole["properties"] |= {old: {"description": f"is called {new}"} for old, new in moved}
    whole["properties"]["global"] = {"type": "object", "description": "of the charts around this one"}
    parts["Configuration"] = config
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart cacheupdater"}
    return {**head, **whole, "$defs": parts}


def _object(tree: dict, path: str, own: dict, used: set[str]) -> dict:
    properties = {}
    said = sentences()
    for name, default in tree.items():
        here = f"{path}.{name}".lstrip(".")
        if here in own:
            used.add(here)
            form = dict(own[here]) if own[here] != "configuration" else _configuration()
        elif isinstance(default, dict) and default:
            form = _object(default, here, own, used)
        else:
            form = {"type": _TYPES[type(default)]}  # a KeyError: say in schema.yaml what may stand there
        properties[name] = {"description": said[here], **form} if here in said else form
    return {"type": "object", "additionalProperties": False, "properties": properties}


_TYPES = {bool: "boolean", int: "integer", str: "string"}


def _configuration() -> dict:
    """Empty where a ConfigMap of the user's holds it."""
    return {"type": "object", "if": {"minProperties": 1}, "then": {"$ref": "#/$defs/Configuration"}}


def main() -> None:
    (CHART / "README.md").write_text(readme())
    (LIBRARY / SHARED).write_text((CHART / SHARED).read_text())
    (CHART / "values.schema.json").write_text(json.dumps(schema(), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
