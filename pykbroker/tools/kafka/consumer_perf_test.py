"""kafka-consumer-perf-test: reads topics in a group and prints the rates.

Its options and lines are Apache Kafka's. The client is kafka-python's, so the rates are a lower bound of the rates that
the cluster can serve. A line on standard error warns if the client was the limit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Sequence
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from pykbroker.tools.kafka.java_dates import date_format
from pykbroker.tools.kafka.java_text import java_fixed, java_ratio
from pykbroker.tools.kafka.perf_report import MEBIBYTE, ClientLoad, Read, print_metrics, wall_ms
from pykbroker.tools.kafka.reach import BAD_START, BOOTSTRAP, COMMAND_CONFIG, said_of
from pykbroker.tools.kafka.tool_clients import bootstrap_of, made, settings_of, told_as_value_error
from pykbroker.tools.kafka.tool_options import Accepted, Given, Options, key_values
from pykbroker.tools.kafka.topic_filter import compiled

if TYPE_CHECKING:
    from kafka import KafkaConsumer

_POLL_MS: Final = 100
_COLUMNS: Final = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, "
    "fetch.nMsg.sec"
)

OPTIONS = Options(
    "This tool is used to verify the consumer performance.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("command-property", "A property of the consumer. It counts more than the file.", "key=value"),
        Accepted("consumer.config", "The old name of --command-config.", "file"),
        Accepted("date-format", "How times are written. The letters are y, M, d, H, m, s and S.", "format", str,
                 "yyyy-MM-dd HH:mm:ss:SSS"),
        Accepted("fetch-size", "The most bytes of a partition in one answer.", "bytes", int, "1048576"),
        Accepted("from-latest", "A group that has no offsets yet starts at the end of the topic."),
        Accepted("group", "The group of the consumer (default: a new one).", "group"),
        Accepted("hide-header", "Leave the header out."),
        Accepted("include", "A regular expression: read all topics whose names match it.", "pattern"),
        Accepted("messages", "The old name of --num-records.", "count", int),
        Accepted("num-records", "How many records are read.", "count", int),
        Accepted("print-metrics", "Print the metrics of the client, kafka-python, at the end."),
        Accepted("reporting-interval", "The time between two rows of --show-detailed-stats.", "ms", int, "5000"),
        Accepted("show-detailed-stats", "Print a row for each reporting interval, and no row of the sum."),
        Accepted("socket-buffer-size", "The receive buffer of a connection.", "bytes", int, "2097152"),
        Accepted("timeout", "End when nothing comes for so many milliseconds.", "ms", int, "10000", is_optional=True),
        Accepted("topic", "The topic.", "topic"),
    ],
)  # fmt: skip


def run(words: Sequence[str]) -> int:
    given = OPTIONS.read(words)
    OPTIONS.require(given, "bootstrap-server")
    OPTIONS.exactly_one(given, "topic", "include")
    wanted_by = OPTIONS.exactly_one(given, "messages", "num-records")
    OPTIONS.exclude(given, "consumer.config", "command-config")
    for old, new in (("messages", "num-records"), ("consumer.config", "command-config")):
        if given.has(old):
            print(f"Warning: --{old} is deprecated. Use --{new} instead.")
    is_detailed = given.has("show-detailed-stats")
    if not given.has("hide-header"):
        print(f"time, threadId, {_COLUMNS}" if is_detailed else f"start.time, end.time, {_COLUMNS}", flush=True)
    try:
        return _measured(given, wanted_by)
    except BAD_START as error:
        print(said_of(error), file=sys.stderr)
        return 1


def _measured(given: Given, wanted_by: str) -> int:
    """Read and print the rates; returns the exit status. Raises ValueError and the errors of options and properties."""
    consumer = _consumer(given)
    try:
        with told_as_value_error():
            if given.has("topic"):
                # Without this, kafka-python joins the group before it knows the topic, gets no partitions, and joins
                # again.
                consumer.topics()
            began_ms = wall_ms()
            load = ClientLoad()
            rebalances = Rebalances(began_ms)
            read = _consume(consumer, given, given.integer(wanted_by), rebalances)
            # Closing the client revokes its partitions, but that is not a rebalance of the run.
            ended_ms, join_ms = wall_ms(), rebalances.total_ms
            load.warn()
            metrics = consumer.metrics(raw=True) if given.has("print-metrics") else None
    finally:
        consumer.close()
    if not given.has("show-detailed-stats"):
        print(total_row(read, began_ms, ended_ms, join_ms, _dates(given)))
    if given.has("print-metrics"):
        print_metrics(metrics)
    return 0


def _consumer(given: Given) -> KafkaConsumer:
    from kafka import KafkaConsumer

    from pykbroker.tools.cluster.client_properties import read_properties

    properties = read_properties(given.text("command-config") or given.text("consumer.config"))
    properties.update(key_values(given.texts("command-property")))
    properties.setdefault("client.id", "perf-consumer-client")
    # The following values override the user's properties, as in Apache Kafka's tool.
    properties |= {
        "bootstrap.servers": given.text("bootstrap-server") or "",
        "group.id": given.text("group") or f"perf-consumer-{SystemRandom().randrange(100_000)}",
        "receive.buffer.bytes": str(given.integer("socket-buffer-size")),
        "max.partition.fetch.bytes": str(given.integer("fetch-size")),
        "auto.offset.reset": "latest" if given.has("from-latest") else "earliest",
        "check.crcs": "false",
    }
    bootstrap = bootstrap_of(properties, "consumer")
    consumer: KafkaConsumer = made(KafkaConsumer, settings_of(properties, KafkaConsumer, "consumer", bootstrap))
    return consumer


class Rebalances:
    """Measures the times in which the consumer had no partitions."""

    def __init__(self, began_ms: int) -> None:
        self.total_ms = 0
        self._began_ms = began_ms
        self._partitions: set[object] = set()

    def revoked(self, partitions: Collection[object], now_ms: int) -> None:
        if not partitions:
            return
        self._partitions.difference_update(partitions)
        if not self._partitions:
            self._began_ms = now_ms

    def assigned(self, partitions: Collection[object], now_ms: int) -> None:
        if not self._partitions:
            self.total_ms += now_ms - self._began_ms
            # A group may assign no partitions at first, and partitions a moment later.
            self._began_ms = now_ms
        self._partitions.update(partitions)


def _consume(consumer: KafkaConsumer, given: Given, wanted: int, rebalances: Rebalances) -> Read:
    from pykbroker.tools.cluster.topic_reader import join_again

    timeout_ms, interval_ms = given.integer("timeout"), given.integer("reporting-interval")
    if interval_ms <= 0:
        raise ValueError("Reporting interval must be greater than 0.")
    dates, is_detailed = _dates(given), given.has("show-detailed-stats")
    _subscribe(consumer, given, rebalances)
    read, before = Read(), Read()
    shows_rebalances = True
    now_ms = reported_ms = consumed_ms = wall_ms()
    while read.records < wanted and now_ms - consumed_ms <= timeout_ms:
        join_again(consumer)
        found = consumer.poll(timeout_ms=_POLL_MS)
        now_ms = wall_ms()
        if found:
            consumed_ms = now_ms
        for record in (record for records in found.values() for record in records):
            read.records += 1
            read.size_bytes += len(record.key or b"") + len(record.value or b"")
            if now_ms - reported_ms >= interval_ms:
                if is_detailed:
                    join_ms = rebalances.total_ms if shows_rebalances else 0
                    print(interval_row(read, before, reported_ms, now_ms, join_ms, dates), flush=True)
                # As in Apache Kafka's tool, only the first row contains rebalances.
                shows_rebalances = False
                reported_ms, before = now_ms, Read(read.records, read.size_bytes)
    if read.records < wanted:
        print(
            f"WARNING: Exiting before consuming the expected number of records: timeout ({timeout_ms} ms) exceeded. "
            "You can use the --timeout option to increase the timeout."
        )
    return read


def _subscribe(consumer: KafkaConsumer, given: Given, rebalances: Rebalances) -> None:
    from kafka import ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
            rebalances.revoked(revoked, wall_ms())

        def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
            rebalances.assigned(assigned, wall_ms())

    if given.has("topic"):
        consumer.subscribe([given.text("topic")], listener=Listener())
    else:
        consumer.subscribe(pattern=whole_name(given.text("include") or ""), listener=Listener())


def whole_name(pattern: str) -> str:
    """Return a pattern that matches only whole names, as the user's pattern does in Java. kafka-python itself would
    match it with the beginning of a name. Raises ValueError."""
    if not pattern:
        raise ValueError("Topic pattern to subscribe to cannot be empty")
    flags = re.match(r"(?:\(\?[a-zA-Z]+\))*", pattern)
    assert flags is not None
    whole = rf"{flags[0]}(?:{pattern[flags.end() :]})\Z"
    compiled(pattern)
    compiled(whole, written=pattern)
    return whole


def _dates(given: Given) -> Callable[[float], str]:
    return date_format(given.text("date-format") or "")


def total_row(read: Read, began_ms: int, ended_ms: int, join_ms: int, dates: Callable[[float], str]) -> str:
    """Return Apache Kafka's row of a whole run. Times are milliseconds since the epoch."""
    seconds, fetch_ms = (ended_ms - began_ms) / 1000, ended_ms - began_ms - join_ms
    megabytes = read.size_bytes / MEBIBYTE
    fetch = [java_ratio(amount, fetch_ms / 1000) for amount in (megabytes, read.records)]
    whole = [java_ratio(amount, seconds) for amount in (megabytes, read.records)]
    return _row([dates(began_ms / 1000), dates(ended_ms / 1000)], read, whole, join_ms, fetch_ms, fetch)


def interval_row(
    read: Read, before: Read, began_ms: int, ended_ms: int, join_ms: int, dates: Callable[[float], str]
) -> str:
    """Return Apache Kafka's row of one interval: the sums so far, and the rates since the last row."""
    elapsed_ms, fetch_ms = ended_ms - began_ms, ended_ms - began_ms - join_ms
    amounts = ((read.size_bytes - before.size_bytes) / MEBIBYTE, read.records - before.records)
    fetch = [1000 * amount / fetch_ms if fetch_ms > 0 else 0.0 for amount in amounts]
    whole = [java_ratio(1000 * amount, elapsed_ms) for amount in amounts]
    # Every row has the number of thread 0, because there is only one thread.
    return _row([dates(ended_ms / 1000), "0"], read, whole, join_ms, fetch_ms, fetch)


def _row(
    begin: Sequence[str], read: Read, whole: Sequence[float], join_ms: int, fetch_ms: int, fetch: Sequence[float]
) -> str:
    megabytes = java_fixed(read.size_bytes / MEBIBYTE, 4)
    per_second = [java_fixed(rate, 4) for rate in whole]
    cells = [*begin, megabytes, per_second[0], str(read.records), per_second[1], str(join_ms), str(fetch_ms)]
    return ", ".join([*cells, *(java_fixed(rate, 4) for rate in fetch)])
