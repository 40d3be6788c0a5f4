"""The command line: see `command_line`."""

from cacheupdater.cli.command_line import main

__all__ = ["main"]
