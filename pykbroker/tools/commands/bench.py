"""`pykbroker bench`: a small load on any Kafka, with the result as a table or JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

import click

from pykbroker.tools.commands import drawn_progress
from pykbroker.tools.commands.client_options import ClientOptions, PropertyOption, client_options
from pykbroker.tools.commands.command_group import CommandGroup
from pykbroker.tools.commands.completion import topic_names
from pykbroker.tools.commands.output import Output, Table, output_option

if TYPE_CHECKING:
    from pykbroker.tools.bench.load_plan import LoadTold
    from pykbroker.tools.bench.load_result import LoadResult
    from pykbroker.tools.cluster.asked_cluster import AskedCluster

_CODECS: Final = click.Choice(["none", "gzip", "snappy", "lz4", "zstd"])
_ACKS: Final = click.Choice(["0", "1", "all"])
_MOST_PROCESSES: Final = 64


@dataclass(frozen=True, slots=True)
class BenchRow:
    """The measured values, for `-o json`. The names of the fields are its keys, and must not change."""

    records: int
    failed: int
    seconds: float
    records_per_second: float
    megabytes_per_second: float
    #: the share of their time in which the clients used the processor, from 0 to 1
    clients_busy: float
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    p99_9_ms: float | None
    max_ms: float | None


_topic = click.argument("topic", shell_complete=topic_names)
_size = click.option(
    "--size", type=click.IntRange(1, 100_000_000), default=100, metavar="BYTES", help="Of each record (default: 100)."
)
# These two have no default here, so that a property of the client holds where the option is not given.
_compression = click.option(
    "-z",
    "--compression",
    cls=PropertyOption,
    key="compression.type",
    type=_CODECS,
    help="The codec (default: none).",
)
_acks = click.option(
    "--acks", cls=PropertyOption, key="acks", type=_ACKS, help="Which replicas acknowledge (default: all)."
)


_patience = click.option(
    "--patience",
    type=click.FloatRange(0, min_open=True),
    default=30,
    metavar="SECONDS",
    help="End when nothing comes for so long (default: 30).",
)


def _records(default: int) -> Callable[..., Any]:
    return click.option(
        "-n", "--records", type=click.IntRange(1), default=default, metavar="N", help=f"How many (default: {default})."
    )


def _processes(name: str) -> Callable[..., Any]:
    return click.option(
        f"--{name}",
        type=click.IntRange(1, _MOST_PROCESSES),
        default=1,
        metavar="N",
        help="Processes beside each other (default: 1).",
    )


@click.group("bench", cls=CommandGroup)
def command() -> None:
    """Put a small load on a cluster and say what came of it.

    The clients are kafka-python's, each in a process of its own on this machine. Their throughput is a lower bound of
    the cluster's. Each result includes how busy the clients were, and what it measures.
    """


@command.command("produce", example="pykbroker bench produce load --records 100000 --size 200 --acks all -z lz4")
@_topic
@output_option
@client_options
@_records(100_000)
@_size
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Records a second (default: as fast as it goes).",
)
@_processes("producers")
@_acks
@_compression  # fmt: skip
def produce(
    client: ClientOptions,
    out: Output,
    topic: str,
    records: int,
    size: int,
    rate: float | None,
    producers: int,
    acks: str | None,
    compression: str | None,
) -> int:
    """Send records; time each from send() to its acknowledgement.

    A topic that is missing is made by the cluster, if it makes topics for producers.
    """
    from pykbroker.tools.bench.load_plan import LoadPlan, shares
    from pykbroker.tools.bench.load_result import summed
    from pykbroker.tools.bench.load_run import LoadRun

    _partitions(client, topic, may_appear=True)
    plans = [
        LoadPlan("produce", topic, client.bootstrap, _producer_properties(client, acks, compression), share, size,
                 rate=(rate or 0) * share / records, run=SystemRandom().getrandbits(64))
        for share in shares(records, producers) if share
    ]  # fmt: skip
    with LoadRun(plans) as run, drawn_progress.bar("records", records) as tell:
        run.begin()
        told = run.told(tell)
    return _print(out, "produce", summed(told, "produce", records, rate or 0))


@command.command("consume", example="pykbroker bench consume load --records 100000")
@_topic
@output_option
@client_options
@_records(100_000)
@_processes("consumers")
@_patience
def consume(client: ClientOptions, out: Output, topic: str, records: int, consumers: int, patience: float) -> int:
    """Read a topic from its beginning; consumers share its partitions."""
    from pykbroker.tools.bench.load_plan import LoadPlan, dealt
    from pykbroker.tools.bench.load_result import summed
    from pykbroker.tools.bench.load_run import LoadRun

    ends = _partitions(client, topic)
    there = sum(ends.values())
    if not there:
        raise click.ClickException(f"topic {topic} has no records: `pykbroker bench produce {topic}` sends some")
    wanted = min(records, there)
    hands = dealt(list(ends), consumers)
    # Each consumer reads a share of the records in proportion to the offsets of its partitions.
    shares = _rounded([wanted * sum(ends[number] for number in hand) / there for hand in hands], wanted)
    plans = [
        LoadPlan("consume", topic, client.bootstrap, dict(client.properties), share, partitions=hand,
                 patience_ms=int(patience * 1000))
        for hand, share in zip(hands, shares, strict=True) if share
    ]  # fmt: skip
    with LoadRun(plans) as run, drawn_progress.bar("records", wanted) as tell:
        run.begin()
        told = run.told(tell)
    return _print(out, "consume", summed(told, "consume", wanted))


@command.command("end-to-end", example="pykbroker bench end-to-end load --records 5000 --rate 1000")
@_topic
@output_option
@client_options
@_records(5_000)
@_size
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), default=500, metavar="N", help="Records a second (default: 500)."
)
@_acks
@_compression
@_patience
def end_to_end(
    client: ClientOptions,
    out: Output,
    topic: str,
    records: int,
    size: int,
    rate: float,
    acks: str | None,
    compression: str | None,
    patience: float,
) -> int:
    """Send records at a rate and read them; time each until it arrives."""
    from pykbroker.tools.bench.load_plan import LEAST_MARKED, LoadPlan
    from pykbroker.tools.bench.load_result import summed
    from pykbroker.tools.bench.load_run import LoadRun

    numbers = sorted(_partitions(client, topic, may_appear=True))
    same = SystemRandom().getrandbits(64)
    receiving = LoadPlan(
        "receive", topic, client.bootstrap, dict(client.properties), records, partitions=numbers, run=same,
        patience_ms=int(patience * 1000),
    )  # fmt: skip
    sending = LoadPlan(
        "send", topic, client.bootstrap, _producer_properties(client, acks, compression), records,
        max(size, LEAST_MARKED), rate=rate, run=same,
    )  # fmt: skip
    with LoadRun([receiving, sending]) as run, drawn_progress.bar("records", records) as tell:
        run.begin()
        received, sent = run.told(tell)
    _keep_failures(received, sent)
    return _print(out, "end-to-end", summed([received], "end-to-end", records, rate))


def _keep_failures(received: LoadTold, sent: LoadTold) -> None:
    """Count records that could not be sent as failures of the run, and keep the processor time of the busier client."""
    received.failed, received.failure = sent.failed, sent.failure
    received.cpu_seconds = max(received.cpu_seconds, sent.cpu_seconds)


def _producer_properties(client: ClientOptions, acks: str | None, compression: str | None) -> dict[str, str]:
    given = {"acks": acks, "compression.type": compression}
    found = {"acks": "all", "compression.type": "none", **client.properties}
    found |= {key: value for key, value in given.items() if value is not None}
    if found["acks"] not in ("all", "-1"):
        found.setdefault("enable.idempotence", "false")
    return found


def _partitions(client: ClientOptions, topic: str, *, may_appear: bool = False) -> dict[int, int]:
    """Return partition -> the number of its offsets. Raises AskFailed, and ClickException if the topic is missing.

    `may_appear`: ask the cluster to create a missing topic, as a producer does.
    """
    from pykbroker.tools.cluster import log_offsets, topics
    from pykbroker.tools.cluster.failure import AskFailed

    with client.cluster() as cluster:
        known = [one.name for one in topics.listed(cluster)]
        if topic not in known:
            _find(cluster, topic, known, may_appear=may_appear)
        (described,) = topics.described(cluster, [topic])
        places = [(topic, row.number) for row in described.partitions]
        begin = log_offsets.found(cluster, dict.fromkeys(places, log_offsets.EARLIEST))
        end = log_offsets.found(cluster, dict.fromkeys(places, log_offsets.LATEST))
    counted = {}
    for place in places:
        first, last = begin[place], end[place]
        if isinstance(first, AskFailed):
            raise first
        if isinstance(last, AskFailed):
            raise last
        counted[place[1]] = last.offset - first.offset
    return counted


def _find(cluster: AskedCluster, topic: str, known: list[str], *, may_appear: bool) -> None:
    """Wait until a topic that is not in the list is there. Raises AskFailed, and ClickException if it is missing."""
    from pykbroker.tools.cluster import topics
    from pykbroker.tools.commands.unknown_names import missing_topic

    if not may_appear:
        raise missing_topic(topic, known, f"`pykbroker bench produce {topic}` makes and fills it")
    if not topics.appears(cluster, topic):
        raise missing_topic(
            topic, known, f"the cluster does not create topics by itself, and `pykbroker topics create {topic}` does"
        )
    click.echo(f"The cluster has created topic {topic}.", err=True)


def _rounded(parts: Sequence[float], whole: int) -> list[int]:
    """Return whole numbers near the parts, whose sum is `whole`."""
    found, before = [], 0.0
    for part in parts:
        found.append(round(before + part) - round(before))
        before += part
    assert sum(found) == whole, (parts, whole)
    return found


def _print(out: Output, work: str, result: LoadResult) -> int:
    from pykbroker.tools.bench.load_result import PERCENTILES

    at = result.latency_ms
    times = [result.mean_ms, *(at.get(of) for of in PERCENTILES), result.greatest_ms]
    row = BenchRow(
        result.records,
        result.failed,
        round(result.seconds, 3),
        round(result.records_per_second, 1),
        round(result.megabytes_per_second, 3),
        round(result.clients_busy, 2),
        *(None if value is None else round(value, 2) for value in times),
    )
    value: dict[str, Any] = {"work": work, **asdict(row), "notes": result.notes}
    if result.failure:
        value["failure"] = result.failure
    out.tables(value, Table(BenchRow, [row], is_object=True))
    if not out.is_json:
        for note in result.notes:
            click.echo(f"- {note}")
    if result.failed:
        raise click.ClickException(f"{result.failed} records failed: {result.failure}")
    return int(result.records == 0)
