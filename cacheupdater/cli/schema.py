"""`cacheupdater schema`: prints the JSON schema of the configuration, for editors and the Helm chart. Contacts nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cacheupdater.cli import exits

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "Print the JSON schema of the configuration, for editors and other checkers."
    parser = commands.add_parser("schema", help="print the configuration's JSON schema", description=text)
    parser.set_defaults(command=schema)


def schema(_args: argparse.Namespace, _environ: Mapping[str, str]) -> int:
    from cacheupdater.config.schema import schema as of_the_models

    print(json.dumps(of_the_models(), indent=2, ensure_ascii=False))
    return exits.OK
