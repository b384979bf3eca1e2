"""kafka-producer-perf-test: sends records and times their acknowledgements.

Its options and lines are Apache Kafka's. The client is kafka-python's, so the rates are a lower bound of the rates that
the cluster can serve. A line on standard error warns if the client was the limit. perf_sending.py does the work itself.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from random import SystemRandom
from typing import Final, NoReturn
from uuid import UUID

from pykbroker.tools.kafka.reach import BAD_START, said_of
from pykbroker.tools.kafka.words import WordParser

_PAYLOADS: Final = ("record-size", "payload-file", "payload-monotonic")
_TRANSACTION_MS: Final = 3000
_RENAMED: Final = (("command-property", "producer-props"), ("command-config", "producer.config"))


def run(words: Sequence[str]) -> int:
    given = _checked(_parser(), words)
    from pykbroker.tools.cluster.client_properties import read_properties
    from pykbroker.tools.kafka.perf_sending import SendPlan, payloads_of, sent
    from pykbroker.tools.kafka.tool_clients import say_deprecated

    for new, old in _RENAMED:
        if getattr(given, _name(old)) is not None:
            say_deprecated(old, new)
    try:
        made = payloads_of(
            given.record_size, given.payload_file, given.payload_delimiter, SystemRandom().getrandbits(64)
        )
        properties = read_properties(given.command_config or given.producer_config)
        properties.update(_pairs(given.command_property or given.producer_props or []))
        properties.setdefault("client.id", "perf-producer-client")
        if given.bootstrap_server is not None:
            properties["bootstrap.servers"] = given.bootstrap_server
        duration_ms = _transactions(given, properties)
        plan = SendPlan(
            topic=given.topic,
            records=given.num_records,
            rate=given.throughput,
            warmup=max(given.warmup_records, 0),
            interval_ms=given.reporting_interval,
            transaction_ms=duration_ms,
            shows_metrics=given.print_metrics,
        )
        return sent(plan, made, properties)
    except BAD_START as error:
        print(said_of(error), file=sys.stderr)
        return 1


def _transactions(given: argparse.Namespace, properties: dict[str, str]) -> int | None:
    """Put the transactional id into the properties. Returns the duration of a transaction, or None if the run has no
    transactions."""
    if given.transaction_duration_ms is None and given.transactional_id is None:
        if "transactional.id" not in properties:
            return None
    elif given.transactional_id is not None or "transactional.id" not in properties:
        properties["transactional.id"] = given.transactional_id or f"performance-producer-{_random_id()}"
    return _TRANSACTION_MS if given.transaction_duration_ms is None else int(given.transaction_duration_ms)


def _random_id() -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(UUID(int=SystemRandom().getrandbits(128), version=4).bytes).decode().rstrip("=")


def _pairs(written: Sequence[str]) -> dict[str, str]:
    """Parse properties of the form `key=value`. Java's split drops empty texts at the end. Raises ValueError."""
    pairs = {}
    for text in written:
        pieces = text.rstrip("=").split("=")
        if len(pieces) != 2:
            raise ValueError(f"Invalid property: {text}")
        pairs[pieces[0]] = pieces[1]
    return pairs


# -- the command line -------------------------------------------------------------------------------------------------


class _Parser(WordParser):
    """argparse with the error texts of argparse4j, where those of argparse differ."""

    def error(self, message: str) -> NoReturn:
        super().error(message.replace("expected at least one argument", "expected 1 argument(s)"))


class _Help(argparse.Action):
    """Prints the help and ends with status 1, as Apache Kafka's tool does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        parser.print_help()
        raise SystemExit(1)


def _checked(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line, after the checks of Apache Kafka's tool in its order. Ends the tool if an
    option is wrong."""
    if not words:
        parser.print_help()
        raise SystemExit(0)
    given, unknown = parser.parse_known_args(list(words))
    if unknown:
        parser.error(f"unrecognized arguments: '{unknown[0]}'")
    # argparse4j names only one missing option, the first in the order of a hash map.
    for name in ("throughput", "topic", "num-records"):
        if getattr(given, _name(name)) is None:
            parser.error(f"argument --{name} is required")
    if given.record_size is None and given.payload_file is None and not given.payload_monotonic:
        parser.error(f"one of the arguments {' '.join(f'--{name}' for name in _PAYLOADS)} is required")
    if given.num_records <= 0:
        parser.error("--num-records should be greater than zero.")
    if max(given.warmup_records, 0) >= given.num_records:
        parser.error(
            "The value for --warmup-records must be strictly fewer than the number of records in the test, "
            "--num-records."
        )
    if given.record_size is not None and given.record_size <= 0:
        parser.error("--record-size should be greater than zero.")
    given.command_property, given.producer_props = _flat(given.command_property), _flat(given.producer_props)
    ways = (given.bootstrap_server, given.command_property, given.producer_props, given.producer_config,
            given.command_config)  # fmt: skip
    if all(way is None for way in ways):
        parser.error(
            "At least one of --bootstrap-server, --command-property, --producer-props, --producer.config or "
            "--command-config must be specified."
        )
    for new, old in _RENAMED:
        if getattr(given, _name(new)) is not None and getattr(given, _name(old)) is not None:
            parser.error(f"--{new} and --{old} cannot be specified together.")
    if given.transaction_duration_ms is not None and given.transaction_duration_ms <= 0:
        parser.error("--transaction-duration-ms should be greater than zero.")
    if given.reporting_interval <= 0:
        parser.error("--reporting-interval should be greater than zero.")
    return given


def _flat(written: list[list[str]] | None) -> list[str] | None:
    return None if written is None else [pair for pairs in written for pair in pairs]


def _name(option: str) -> str:
    return option.replace("-", "_").replace(".", "_")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="kafka-producer-perf-test", description="This tool is used to verify the producer performance.",
        add_help=False,
    )  # fmt: skip
    add = parser.add_argument
    add("-h", "--help", nargs=0, action=_Help, help="print this text")
    add("--bootstrap-server", help="the brokers to connect to first; counts more than bootstrap.servers")
    add("--topic", help="the topic of the records")
    add("--num-records", type=_whole("Long", 63), help="how many records are sent")
    add("--payload-delimiter", default="\\n", help="what parts the payloads of a file, a regular expression (\\n)")
    add("--throughput", type=_decimal, help="records a second, about; -1: as fast as it goes")
    for new, old in _RENAMED:
        many = new == "command-property"
        for name in (new, old):
            said = f"use --{new}" if name == old else "of the producer"
            if many:
                add(f"--{name}", action="append", nargs="+", metavar="KEY=VALUE", help=said)
            else:
                add(f"--{name}", dest=_name(name), metavar="FILE", help=said)
    add("--print-metrics", action="store_true", help="print the metrics of the client, kafka-python, at the end")
    add("--transactional-id", help="send in transactions, by this id")
    add("--transaction-duration-ms", type=_whole("Long", 63), help="commit a transaction after this time (3000)")
    add(
        "--warmup-records", type=_whole("Long", 63), default=0, help="the steady state begins after so many records (0)"
    )
    add("--reporting-interval", type=_whole("Long", 63), default=5000, metavar="MS", help="between two lines (5000)")
    payloads = parser.add_mutually_exclusive_group()
    payloads.add_argument("--record-size", type=_whole("Integer", 31), help="bytes")
    payloads.add_argument("--payload-file", help="a file of payloads, UTF-8; each record has one of them by chance")
    payloads.add_argument("--payload-monotonic", action="store_true", help="the payloads are 0, 1, 2 and so on")
    return parser


def _whole(kind: str, bits: int) -> Callable[[str], int]:
    """Return a parser of a whole number of a Java type."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d+", text) or not -(1 << bits) <= int(text) < 1 << bits:
            raise _unreadable(text, kind)
        return int(text)

    return read


def _decimal(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _unreadable(text, "Double") from None


def _unreadable(text: str, kind: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"could not convert '{text}' to {kind} (For input string: \"{text}\")")
