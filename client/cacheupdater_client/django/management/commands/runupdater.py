"""`manage.py runupdater`: the updater, with the settings and the path of this project.

The process becomes `python -m cacheupdater run`, so signals and exit codes are the updater's. Loaders that use models call
`django.setup()` themselves, as they do under any other start. Needs the extra `updater` of cacheupdater.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from django.core.management.base import BaseCommand, CommandError

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Starts an updater in the place of this process."""

    help = "Runs an updater: `cacheupdater run`, with this project's settings."
    requires_system_checks: tuple[str, ...] = ()  # the updater checks its configuration itself

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Those of `cacheupdater run` that say what to refresh."""
        parser.add_argument("-c", "--config", help="the updater's file, such as cacheupdater.yaml")
        parser.add_argument("--app", help="an application's declared values, such as shop.caching:cache")

    def handle(self, *args: object, config: str | None, app: str | None, **options: object) -> None:
        """Does not return."""
        del args, options
        if find_spec("cacheupdater") is None:
            raise CommandError(
                "the updater is not installed: install the package cacheupdater with its extra `updater`"
            )
        said = [word for name, value in (("-c", config), ("--app", app)) if value for word in (name, value)]
        # manage.py found the project beside itself; the updater looks where PYTHONPATH says
        places = [sys.path[0], os.environ.get("PYTHONPATH")]  # noqa: TID251  for the next program
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))  # noqa: TID251  as above
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "cacheupdater", "run", *said])  # noqa: S606  no shell
