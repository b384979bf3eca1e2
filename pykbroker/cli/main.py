"""`pykbroker`: the command line. One module per command; this one only finds it.

Imports are kept small: the time from here to the first answered request is measured.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType

COMMANDS = {
    "start": "start a node (no argument needed)",
    "format": "format the log directories of a properties file",
    "storage": "kafka-storage: info, format, version-mapping, feature-dependencies, random-uuid",
    "dump-log": "print or verify the files of a log directory",
    "health": "ask a running node whether it serves",
    "generate": "print a manifest for Kubernetes, a Compose file or a unit for systemd",
    "in-container": "what the scripts of the container image run",
    "random-uuid": "print a new cluster id or directory id",
    "version": "print the version",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="pykbroker", description="A Kafka broker in Python.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen = given[0] if given else ""
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        # Only the command that runs is imported; the others are known by name.
        if name == chosen:
            if name == "in-container":
                _end_on_signals()
            module = import_module(f"pykbroker.cli.{name.replace('-', '_')}")
            module.arguments(command)
            command.set_defaults(run=module.run)
    try:
        options = parser.parse_args(given)
    except SystemExit as ended:
        # argparse says 2 of words that it does not know, Apache Kafka's tools say 1.
        if ended.code == 2 and chosen == "storage":
            raise SystemExit(1) from None
        raise
    status: int = options.run(options)
    return status


def _end_on_signals() -> None:
    """The first process of a container gets no signal that it does not handle: at once, until a node handles them."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


if __name__ == "__main__":
    sys.exit(main())
