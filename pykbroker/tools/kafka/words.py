"""Command lines with a verb, as argparse4j reads them: --help on standard output, status 1 for a wrong command line.

Responsible for the exit status and the stream of argparse's output, and for the tables that such verbs print.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from pykbroker.tools.kafka.reach import exit_status, reached

_HOSTS: Final = "HOST:PORT,..."


class WordParser(argparse.ArgumentParser):
    """argparse with exit status 1 for a wrong command line, where Python has 2, and without abbreviations of options.
    Apache Kafka's tools do the same."""

    def __init__(self, **settings: object) -> None:
        super().__init__(allow_abbrev=False, **settings)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        raise SystemExit(1)


def parsed(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line; ends the tool for --help."""
    return parser.parse_args(list(words))


def add_servers(
    parser: argparse.ArgumentParser, *, controllers: bool, required: bool = True, short: bool = False
) -> None:
    """Add --bootstrap-server, --bootstrap-controller and --command-config. `short`: also -b, -C and -c."""

    def names(long: str, letter: str) -> list[str]:
        return [long, letter] if short else [long]

    group = parser.add_mutually_exclusive_group(required=required)
    group.add_argument(*names("--bootstrap-server", "-b"), metavar=_HOSTS, help="the brokers to connect to first")
    if controllers:
        group.add_argument(
            *names("--bootstrap-controller", "-C"), metavar=_HOSTS, help="the controllers to connect to first"
        )
    parser.add_argument(*names("--command-config", "-c"), metavar="FILE", help="a properties file for the client")


def with_cluster(options: argparse.Namespace, work: Callable[..., int]) -> int:
    """Open the cluster that the options name, and return the result of `work` with it. Returns 1 if a file cannot be
    read or a request fails."""
    controllers = getattr(options, "bootstrap_controller", None)
    servers = getattr(options, "bootstrap_server", None)
    if not servers and not controllers:
        print("You must specify either --bootstrap-controller or --bootstrap-server.", file=sys.stderr)
        return 1

    def with_options() -> int:
        file = getattr(options, "command_config", None)
        with reached(controllers or servers or "", file, of_controllers=bool(controllers)) as cluster:
            return work(cluster, options)

    return exit_status(with_options)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table. A column is as wide as its widest cell, and a tab follows each cell."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "".join(
        "".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)) + "\n" for row in rows
    )
