"""`pykbroker version`."""

from __future__ import annotations

import argparse

from pykbroker import __version__
from pykbroker.entry.command_parser import CommandParser
from pykbroker.entry.failures import put_line


def parser() -> CommandParser:
    return CommandParser("version", "Print the version.", example="pykbroker version")


def run(given: argparse.Namespace) -> int:
    put_line(__version__)
    return 0
