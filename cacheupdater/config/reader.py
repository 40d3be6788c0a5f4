"""Reads a YAML file into a `Document`.

Scalars stay the text that stands in the file, with variables put in: the models type them, so that `yes`, `1e3` or
`010` mean nothing surprising. YAML that has no place in a configuration is refused with its line: a key that stands
twice, an empty value, tags and merge keys. Aliases (`*name`) work, within a bound. The reader knows no key's meaning.
"""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from cacheupdater import masking
from cacheupdater.config.document import Document, Tree
from cacheupdater.config.interpolate import interpolate
from cacheupdater.config.problems import TOP, ConfigErrors, Path, Place, Problem
from cacheupdater.config.units import printable, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path as FilePath

FILE_BYTES_MAX = 4 * 1024 * 1024  # ten thousand namespaces need half of it
NODES_MAX = 200_000  # aliases multiply: ten lines of YAML can spell a billion values
DEPTH_MAX = 20  # the deepest setting lies 5 deep

_LINE_END = re.compile("\r\n|[\r\n]")  # as the YAML reader counts them
_PLAIN = "tag:yaml.org,2002:"
# Text that the YAML reader quotes may be a piece of a URL, cut by a bracket or a comma. Only tokens and signs are kept
_QUOTED = re.compile(r"""(["'])(?:(?P<kept><[a-z ]+>|.{1,2})\1|.*)""", re.DOTALL)


def read_document(file: FilePath, environ: Mapping[str, str]) -> Document:
    """Raises ConfigErrors for a file that cannot be read at all; smaller problems are in the document."""
    text = _read(file)
    document = Document(str(file), _LINE_END.split(text))
    root = _compose(document, text)
    if isinstance(root, MappingNode):
        tree = _Walk(document, environ).value(root, ())
        document.tree = tree if isinstance(tree, dict) else {}
    else:
        document.refuse((), "a configuration is a mapping of keys; begin with the line `version: 1`")
        document.raise_if_refused()
    return document


def _read(file: FilePath) -> str:
    def unreadable(why: str) -> ConfigErrors:
        return ConfigErrors([Problem(str(file), None, (), why)])

    try:
        with file.open("rb") as stream:
            data = stream.read(FILE_BYTES_MAX + 1)
        text = data.decode("utf-8-sig")
    except (OSError, ValueError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
        raise unreadable(
            f"cannot be read ({why}); name the configuration with -c FILE or CACHEUPDATER_CONFIG"
        ) from e
    if len(data) > FILE_BYTES_MAX:
        raise unreadable(f"is larger than {FILE_BYTES_MAX >> 20} MiB")
    return text


def _compose(document: Document, text: str) -> Node | None:
    """The top node of the only document in the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an anchor that is used twice is legal YAML
            root: Node | None = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        document.note((), Place(mark.line, mark.column, 1) if mark else TOP, f"not YAML: {_why(e)}")
    except ReaderError as e:
        ahead = _LINE_END.split(text[: e.position])
        sign = printable(text[e.position])
        place = Place(len(ahead) - 1, len(ahead[-1]), 1)
        document.note((), place, f"not YAML: the character {sign} may not stand in a file")
    except YAMLError as e:
        document.refuse((), f"not YAML: {str(e).splitlines()[0]}")
    except RecursionError:
        document.refuse((), "is nested too deeply")
    document.raise_if_refused()
    return root


def _why(error: MarkedYAMLError) -> str:
    why = " ".join(part for part in (error.context, error.problem) if part)
    why = _QUOTED.sub(lambda match: match[0] if match["kept"] else masking.MASK, why)
    return f'{why}; inside {{ }} a value with ${{...}} needs quotes: "${{...}}"' if "got '{'" in why else why


class _Walk:
    """One walk over the nodes of a document. A refused value is None, and absent from the tree."""

    def __init__(self, document: Document, environ: Mapping[str, str]) -> None:
        self._document = document
        self._environ = environ
        self._nodes = 0

    def value(self, node: Node, path: Path) -> Tree | None:
        self._limit(path)
        self._document.values[path] = self._place(node)
        refusal = _refusal(str(node.tag))
        if refusal:
            self._document.refuse(path, refusal)
            return None
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            items = [self.value(item, (*path, at)) for at, item in enumerate(node.value)]
            return [item for item in items if item is not None]
        assert isinstance(node, ScalarNode), "YAML has three kinds of nodes"
        return self._scalar(node, path)

    def _limit(self, path: Path) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX or len(path) > DEPTH_MAX:
            self._document.refuse(
                (), "is too large or nested too deeply, perhaps by an alias that holds itself"
            )
            self._document.raise_if_refused()

    def _scalar(self, node: ScalarNode, path: Path) -> str | None:
        try:
            return interpolate(str(node.value), self._environ)
        except ValueError as e:
            self._document.refuse(path, str(e))
            return None

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Tree]:
        tree: dict[str, Tree] = {}
        for key, value in node.value:
            here, place = (*path, str(key.value)), self._place(key)
            refusal = self._key_refusal(key, here)
            if refusal:
                self._document.note(here if isinstance(key, ScalarNode) else path, place, refusal)
                continue
            self._document.keys[here] = place
            item = self.value(value, here)
            if item is not None:
                tree[str(key.value)] = item
        return tree

    def _key_refusal(self, key: Node, here: Path) -> str:
        if not isinstance(key, ScalarNode):
            return "a key must be text"
        if str(key.tag) == _PLAIN + "merge":
            return "merge keys have no meaning here; put what is shared under `defaults`"
        if here in self._document.keys:
            return f"stands twice; the first is on line {self._document.keys[here].line + 1}"
        return ""

    def _place(self, node: Node) -> Place:
        start, end = node.start_mark, node.end_mark
        line = self._document.lines[start.line] if start.line < len(self._document.lines) else ""
        stop = end.column if end.line == start.line else len(line)
        return Place(start.line, start.column, max(0, stop - start.column))


def _refusal(tag: str) -> str:
    if tag == _PLAIN + "null":
        return "has no value; give it one or remove the line"
    if tag.startswith(_PLAIN):
        return ""
    return f"the tag {shown(tag)} has no meaning here; remove it"
