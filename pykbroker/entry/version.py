"""`pykbroker version`."""

from __future__ import annotations

import argparse

from pykbroker import __version__
from pykbroker.entry.command_parser import CommandParser


def parser() -> CommandParser:
    return CommandParser("version", "Print the version.", example="pykbroker version")


def run(given: argparse.Namespace) -> int:
    print(__version__)
    return 0
