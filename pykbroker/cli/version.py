"""`pykbroker version`."""

from __future__ import annotations

import argparse

from pykbroker import __version__


def arguments(parser: argparse.ArgumentParser) -> None:
    """None."""


def run(options: argparse.Namespace) -> int:
    print(__version__)
    return 0
