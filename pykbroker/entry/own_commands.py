"""The commands of this package by name, each in a module of that name: `parser()` and `run(given)`.

A module is imported when its command is used.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Final, Protocol, cast

from pykbroker.entry.command_parser import CommandParser
from pykbroker.entry.failures import without_output

OWN_COMMANDS: Final = {
    "start": "Run a node, or a cluster of nodes; no argument is needed.",
    "format": "Format the log directories of a properties file.",
    "health": "Ask the running nodes of this machine whether they serve.",
    "version": "Print the version.",
}
#: The script of `generate completion` sets this variable when it asks for the possible next words.
COMPLETE_VARIABLE: Final = "_PYKBROKER_COMPLETE"


class OwnCommand(Protocol):
    """The functions that the module of each command has."""

    def parser(self) -> CommandParser: ...

    def run(self, given: argparse.Namespace) -> int:
        """Run the command; returns the exit status."""


def own_command(name: str) -> OwnCommand:
    return cast("OwnCommand", import_module(f"pykbroker.entry.{name}"))


def run_own_command(name: str, words: Sequence[str]) -> int:
    """Run a command; returns the exit status. Raises UsageError, and the exceptions that `exit_status` in failures.py
    turns into a line."""
    found = own_command(name)
    try:
        given = found.parser().parse(words)
    except SystemExit:
        # The help was printed.
        return 0
    except OSError as error:
        # The help could not be printed.
        raise without_output(error) from None
    return found.run(given)
