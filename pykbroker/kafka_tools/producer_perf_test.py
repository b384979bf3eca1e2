"""kafka-producer-perf-test: sends records and times their acknowledgements, by the load of `pykbroker bench produce`.

Its last line is Apache Kafka's. The client is kafka-python's, in a process of its own, so the rates are a lower
bound of what the cluster serves; a line on standard error says when the client was the limit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from pykbroker.kafka_tools.reach import BAD_START, said_of
from pykbroker.kafka_tools.tool_options import key_values

if TYPE_CHECKING:
    from pykbroker.load.load_plan import LoadTold

_NOT_SERVED: Final = ("payload-file", "payload-monotonic", "transactional-id", "transaction-duration-ms")
MEBIBYTE: Final = 1 << 20


def run(words: Sequence[str]) -> int:
    given = _parser().parse_args(words)
    from pykbroker.admin.client_properties import read_properties
    from pykbroker.admin.failure import AskFailed
    from pykbroker.load.load_plan import LoadPlan
    from pykbroker.load.load_run import LoadRun

    try:
        properties = read_properties(given.command_config) if given.command_config else {}
        properties.update(key_values([pair for pairs in given.command_property for pair in pairs]))
    except BAD_START as error:
        print(said_of(error), file=sys.stderr)
        return 1
    bootstrap = given.bootstrap_server or properties.get("bootstrap.servers", "")
    if not bootstrap:
        print("At least one of --bootstrap-server and bootstrap.servers must be given", file=sys.stderr)
        return 1
    if properties.get("acks", "all") not in ("all", "-1"):
        properties.setdefault("enable.idempotence", "false")
    plan = LoadPlan("produce", given.topic, bootstrap, properties, given.num_records, given.record_size,
                    rate=max(given.throughput, 0), run=SystemRandom().getrandbits(64))  # fmt: skip
    try:
        with LoadRun([plan]) as load:
            load.begin()
            (told,) = load.told(lambda done: None)
    except AskFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(summary(told))
    return ended(told, "produce", given.num_records)


def summary(told: LoadTold) -> str:
    """Apache Kafka's last line."""
    from pykbroker.load.load_result import PERCENTILES, summed

    result = summed([told], "produce", told.records)
    rate = told.bytes / result.seconds / MEBIBYTE if result.seconds else 0.0
    slow = [f"{result.latency_ms.get(of, 0):.0f} ms {of:g}th" for of in PERCENTILES]
    return (
        f"{told.records} records sent, {result.records_per_second:f} records/sec ({rate:.2f} MB/sec), "
        f"{result.mean_ms or 0:.2f} ms avg latency, {result.greatest_ms or 0:.2f} ms max latency, {', '.join(slow)}."
    )


def ended(told: LoadTold, work: str, wanted: int) -> int:
    """The exit status; on standard error what the printed line does not say."""
    from pykbroker.load.load_result import summed

    for note in summed([told], work, wanted).notes:
        if "kafka-python" in note:
            print(f"WARN {note}", file=sys.stderr)
    if told.failed:
        print(f"{told.failed} records failed: {told.failure}", file=sys.stderr)
    return int(bool(told.failed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "kafka-producer-perf-test", description="This tool is used to verify the producer performance.",
        allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--bootstrap-server", help="the brokers to connect to first")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--num-records", required=True, type=_count)
    parser.add_argument("--record-size", required=True, type=_count, help="bytes")
    parser.add_argument("--throughput", required=True, type=float, help="records a second; -1: as fast as it goes")
    parser.add_argument(
        "--command-property", "--producer-props", action="append", nargs="+", default=[], help="of the producer"
    )
    parser.add_argument("--command-config", "--producer.config", help="of the producer")
    parser.add_argument("--reporting-interval", type=_count, help="has no effect: only the last line is printed")
    parser.add_argument("--warmup-records", type=int, help="has no effect")
    parser.add_argument("--print-metrics", action="store_true", help="has no effect: the client has none of Java's")
    for name in _NOT_SERVED:
        parser.add_argument(f"--{name}", nargs="?", action=_NotServed, help="not served here")
    return parser


class _NotServed(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        parser.error(f"{self.option_strings[0]} is not supported by pykbroker")


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number
