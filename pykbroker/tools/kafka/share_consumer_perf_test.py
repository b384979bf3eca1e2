"""kafka-share-consumer-perf-test: reads a topic as members of a share group and prints the rates.

Its options and lines are those of Apache Kafka 4.3.1. The member is written in Python, so the rates are a lower bound
of the rates that the cluster can serve. A line on standard error warns if it was the limit. A run goes on while records
come, where Apache Kafka's tool interrupts its consumers when the whole run is older than --timeout. Ctrl-C ends both
tools at once and without further acknowledgements. Ours prints the rows of what was read until then, and Apache Kafka's
prints nothing more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.kafka.java_dates import date_format
from pykbroker.tools.kafka.java_text import java_fixed, java_ratio
from pykbroker.tools.kafka.perf_report import MEBIBYTE, ClientLoad, Read, print_metrics, wall_ms
from pykbroker.tools.kafka.reach import BAD_START, BOOTSTRAP, COMMAND_CONFIG, said_of
from pykbroker.tools.kafka.tool_options import Accepted, Given, Options, key_values

if TYPE_CHECKING:
    from pykbroker.tools.cluster.share_group_reader import ShareGroupReader

_HEADER: Final = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"

OPTIONS = Options(
    "This tool is used to verify the share consumer performance.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("command-property", "A property of the consumer. It counts more than the file.", "key=value"),
        Accepted("consumer.config", "The old name of --command-config.", "file"),
        Accepted("date-format", "How times are written. The letters are y, M, d, H, m, s and S.", "format", str,
                 "yyyy-MM-dd HH:mm:ss:SSS"),
        Accepted("fetch-size", "The most bytes in one answer.", "bytes", int, "1048576"),
        Accepted("group", "The share group.", "group", str, "perf-share-consumer"),
        Accepted("hide-header", "Leave the header out."),
        Accepted("messages", "The old name of --num-records.", "count", int),
        Accepted("num-records", "How many records are read.", "count", int),
        Accepted("print-metrics", "Print the metrics of the client, which has none here."),
        Accepted("reporting-interval", "The time between two rows of --show-detailed-stats.", "ms", int, "5000"),
        Accepted("show-consumer-stats", "Print a row for each member at the end."),
        Accepted("show-detailed-stats", "Print a row for each reporting interval, too."),
        Accepted("socket-buffer-size", "Has no effect here.", "bytes", int, "2097152"),
        Accepted("threads", "The number of members, each with a thread of its own.", "count", int, "1"),
        Accepted("timeout", "End when nothing comes for so many milliseconds.", "ms", int, "10000", is_optional=True),
        Accepted("topic", "The topic.", "topic"),
    ],
)  # fmt: skip


def run(words: Sequence[str]) -> int:
    given = OPTIONS.read(words)
    OPTIONS.require(given, "topic", "bootstrap-server")
    wanted_by = OPTIONS.exactly_one(given, "messages", "num-records")
    OPTIONS.exclude(given, "consumer.config", "command-config")
    for old, new in (("messages", "num-records"), ("consumer.config", "command-config")):
        if given.has(old):
            print(f"Warning: --{old} is deprecated. Use --{new} instead.")
    if not given.has("hide-header"):
        print(_HEADER, flush=True)
    try:
        _measure(given, given.integer(wanted_by))
    except AskFailed as error:
        print(f"{error.name}: {error}", file=sys.stderr)
        return 1
    except BAD_START as error:
        print(said_of(error), file=sys.stderr)
        return 1
    return 0


@dataclass(slots=True)
class _Member:
    """One member, and what it has read."""

    #: counts from 1
    number: int
    client_id: str
    reader: ShareGroupReader
    read: Read = field(default_factory=Read)


@dataclass(slots=True, frozen=True)
class _Plan:
    """The end of the reading, and the rows that are printed meanwhile."""

    records: int
    timeout_ms: int
    interval_ms: int
    is_detailed: bool
    dates: Callable[[float], str]


def _measure(given: Given, records: int) -> None:
    """Read, and print the rows. Raises AskFailed, and the errors of options and properties."""
    with _members(given) as members:
        plan = _Plan(
            records,
            given.integer("timeout"),
            given.integer("reporting-interval"),
            given.has("show-detailed-stats"),
            date_format(given.text("date-format") or ""),
        )
        if plan.interval_ms <= 0:
            raise ValueError("Reporting interval must be greater than 0.")
        load = ClientLoad()
        began_ms = wall_ms()
        try:
            _read_all(members, plan)
        except KeyboardInterrupt:
            ended_ms = wall_ms()
            if given.has("show-consumer-stats"):
                _print_members(members, began_ms, ended_ms, plan.dates)
            print(total_row(_sum_of(members), began_ms, ended_ms, plan.dates))
            raise
        ended_ms = wall_ms()
        load.warn()
        if given.has("show-consumer-stats"):
            _print_members(members, began_ms, ended_ms, plan.dates)
        read = _sum_of(members)
        if read.records < records:
            print(
                f"WARNING: Exiting before consuming the expected number of records: timeout ({plan.timeout_ms} ms) "
                "exceeded. You can use the --timeout option to increase the timeout."
            )
        for one in members:
            one.reader.acknowledge()
        print(total_row(read, began_ms, ended_ms, plan.dates))
        for _ in members if given.has("print-metrics") else ():
            print_metrics(None)


def _print_members(members: Sequence[_Member], began_ms: int, ended_ms: int, dates: Callable[[float], str]) -> None:
    """Print a row for each member."""
    for one in members:
        row = total_row(one.read, began_ms, ended_ms, dates)
        print(f"Share consumer {one.number} having client id {one.client_id} consumption metrics- {row}")


@contextmanager
def _members(given: Given) -> Iterator[list[_Member]]:
    """Yield the members for the block. Raises the errors of options and properties."""
    from pykbroker.tools.cluster.client_properties import read_properties
    from pykbroker.tools.cluster.share_group_reader import WantedShare
    from pykbroker.tools.cluster.share_member_session import ACCEPT
    from pykbroker.tools.kafka.tool_share_member import share_member

    properties = read_properties(given.text("command-config") or given.text("consumer.config"))
    properties.update(key_values(given.texts("command-property")))
    client_id = properties.get("client.id", "perf-share-consumer-client")
    group = given.text("group") or ""
    properties |= {"group.id": group, "fetch.max.bytes": str(given.integer("fetch-size"))}
    count = given.integer("threads")
    if count < 1:
        raise ValueError("--threads must be at least 1")
    wanted = WantedShare(group, [given.text("topic") or ""], ACCEPT, silence_ms=given.integer("timeout"))
    with ExitStack() as stack:
        members = []
        for number in range(1, count + 1):
            own = client_id if count == 1 else f"{client_id}-{number}"
            member = share_member(
                properties | {"client.id": own}, given.text("bootstrap-server") or "", wanted, lambda *_: None
            )
            members.append(_Member(number, own, stack.enter_context(member)))
        yield members


def _read_all(members: Sequence[_Member], plan: _Plan) -> None:
    """Let all members read at once, until they have the records together or nothing more comes. Raises AskFailed."""
    with ThreadPoolExecutor(len(members)) as threads:
        running = [threads.submit(_consume, one, members, plan) for one in members]
        try:
            for each in running:
                each.result()
        except BaseException:
            for one in members:
                one.reader.stop()
            raise


def _consume(member: _Member, members: Sequence[_Member], plan: _Plan) -> None:
    if plan.records <= 0:
        return
    read, before = member.read, Read()
    now_ms = reported_ms = consumed_ms = wall_ms()
    for batch in member.reader.batches():
        now_ms = wall_ms()
        if batch:
            consumed_ms = now_ms
        for record in batch:
            read.records += 1
            read.size_bytes += len(record.key or b"") + len(record.value or b"")
            if now_ms - reported_ms >= plan.interval_ms:
                if plan.is_detailed:
                    row = interval_row(read, before, reported_ms, now_ms, plan.dates)
                    print(f"{row} for share consumer {member.number}", flush=True)
                reported_ms, before = now_ms, Read(read.records, read.size_bytes)
        if now_ms - consumed_ms > plan.timeout_ms or _sum_of(members).records >= plan.records:
            return


def _sum_of(members: Sequence[_Member]) -> Read:
    return Read(sum(one.read.records for one in members), sum(one.read.size_bytes for one in members))


def total_row(read: Read, began_ms: int, ended_ms: int, dates: Callable[[float], str]) -> str:
    """Return Apache Kafka's row of a whole run. Times are milliseconds since the epoch."""
    seconds = (ended_ms - began_ms) / 1000
    rates = [java_ratio(amount, seconds) for amount in (read.size_bytes / MEBIBYTE, read.records)]
    return _row(read, began_ms, ended_ms, rates, dates)


def interval_row(read: Read, before: Read, began_ms: int, ended_ms: int, dates: Callable[[float], str]) -> str:
    """Return Apache Kafka's row of one interval: the sums so far, and the rates since the last row."""
    amounts = ((read.size_bytes - before.size_bytes) / MEBIBYTE, read.records - before.records)
    rates = [java_ratio(1000 * amount, ended_ms - began_ms) for amount in amounts]
    return _row(read, began_ms, ended_ms, rates, dates)


def _row(read: Read, began_ms: int, ended_ms: int, rates: Sequence[float], dates: Callable[[float], str]) -> str:
    cells = [
        dates(began_ms / 1000),
        dates(ended_ms / 1000),
        java_fixed(read.size_bytes / MEBIBYTE, 4),
        *(java_fixed(rate, 4) for rate in rates),
        str(read.records),
        str(ended_ms - began_ms),
    ]
    return ", ".join(cells)
