"""kafka-transactions: list, describe and end transactions, and find hanging ones."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.kafka.tool_options import KAFKA_VERSION
from pykbroker.tools.kafka.words import WordParser, parsed, table, with_cluster

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster

_PRODUCERS: Final = [
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
]
_HANGING: Final = [
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
]


def run(words: Sequence[str]) -> int:
    parser = WordParser(
        prog="kafka-transactions.sh",
        description="This tool is used to analyze the transactional state of producers in the cluster.",
    )
    parser.add_argument("-v", "--version", action="version", version=KAFKA_VERSION)
    parser.add_argument("--command-config", metavar="FILE", help="a properties file for the client")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT,...", required=True, help="the brokers")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    listing = verbs.add_parser("list", help="list transactions")
    listing.add_argument("--duration-filter", type=int, default=-1, metavar="MS", help="only those open for longer")
    listing.add_argument("--transactional-id-pattern", metavar="REGEX", help="only these ids")
    describe = verbs.add_parser("describe", help="describe the transaction of an id")
    describe.add_argument("--transactional-id", required=True)
    producers = verbs.add_parser("describe-producers", help="describe the producers of a partition")
    producers.add_argument("--broker-id", type=int, help="as this replica knows them")
    abort = verbs.add_parser("abort", help="abort a transaction that hangs")
    for verb in (producers, abort):
        verb.add_argument("--topic", required=True)
        verb.add_argument("--partition", type=int, required=True)
    abort.add_argument("--start-offset", type=int, help="where the transaction begins")
    abort.add_argument("--producer-id", type=int)
    abort.add_argument("--producer-epoch", type=int)
    abort.add_argument("--coordinator-epoch", type=int)
    hanging = verbs.add_parser("find-hanging", help="find transactions that no coordinator will end")
    hanging.add_argument("--broker-id", type=int)
    hanging.add_argument("--max-transaction-timeout", type=int, default=15, metavar="MINUTES")
    hanging.add_argument("--topic")
    hanging.add_argument("--partition", type=int)
    force = verbs.add_parser("forceTerminateTransaction", help="end the open transaction of an id")
    force.add_argument("--transactionalId", dest="transactional_id", required=True)
    options = parsed(parser, words)
    work = {
        "list": _list,
        "describe": _describe,
        "describe-producers": _describe_producers,
        "abort": _abort,
        "find-hanging": _find_hanging,
        "forceTerminateTransaction": _force,
    }[options.verb]
    return with_cluster(options, work)


def _fail(what: str, error: AskFailed) -> int:
    said = str(error).rstrip(".")
    print(f"{what}: {said}. Enable debug logging for additional detail.", file=sys.stderr)
    return 1


def _list(cluster: AskedCluster, options: argparse.Namespace) -> int:
    from pykbroker.tools.cluster import transactions

    try:
        found = transactions.listed(
            cluster, longer_than_ms=options.duration_filter, pattern=options.transactional_id_pattern
        )
    except AskFailed as error:
        return _fail("Failed to list transactions", error)
    rows = [["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]]
    rows += [[one.id, str(one.coordinator), str(one.producer_id), one.state] for one in found]
    print(table(rows), end="")
    return 0


def _describe(cluster: AskedCluster, options: argparse.Namespace) -> int:
    from pykbroker.tools.cluster import transactions

    try:
        found = transactions.described(cluster, options.transactional_id)
    except AskFailed as error:
        what = f"Failed to describe transaction state of transactional-id `{options.transactional_id}`"
        return _fail(what, error)
    started = found.started_ms
    header = [
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    ]
    row = [
        str(found.coordinator),
        found.id,
        str(found.producer_id),
        str(found.producer_epoch),
        found.state,
        str(found.timeout_ms),
        "None" if started is None else str(started),
        "None" if started is None else str(int(time.time() * 1000) - started),
        ",".join(f"{topic}-{number}" for topic, number in found.partitions),
    ]
    print(table([header, row]), end="")
    return 0


def _describe_producers(cluster: AskedCluster, options: argparse.Namespace) -> int:
    from pykbroker.tools.cluster import transactions

    place = (options.topic, options.partition)
    where = "leader" if options.broker_id is None else f"broker {options.broker_id}"
    what = f"Failed to describe producers for partition {options.topic}-{options.partition} on {where}"
    try:
        found = transactions.producers(cluster, [place], options.broker_id)[place]
    except AskFailed as error:
        found = error
    if isinstance(found, AskFailed):
        return _fail(what, found)
    rows = [_PRODUCERS]
    rows += [
        [
            str(one.producer_id),
            str(one.producer_epoch),
            str(one.coordinator_epoch),
            str(one.last_sequence),
            str(one.last_timestamp_ms),
            "None" if one.started_at < 0 else str(one.started_at),
        ]
        for one in found
    ]
    print(table(rows), end="")
    return 0


def _abort(cluster: AskedCluster, options: argparse.Namespace) -> int:
    from pykbroker.tools.cluster import transactions

    place = (options.topic, options.partition)
    name = f"{options.topic}-{options.partition}"
    if options.start_offset is None and options.producer_id is None:
        raise ValueError(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or "
            "with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    if options.start_offset is None:
        for option in ("producer_epoch", "coordinator_epoch"):
            if getattr(options, option) is None:
                raise ValueError(f"Missing required argument --{option.replace('_', '-')}")
        spec = (options.producer_id, options.producer_epoch, options.coordinator_epoch)
    else:
        try:
            found = transactions.open_at(cluster, place, options.start_offset)
        except AskFailed as error:
            return _fail(f"Failed to validate producer state for partition {name}", error)
        if found is None:
            raise ValueError(
                f"Could not find any open transactions starting at offset {options.start_offset} on partition {name}"
            )
        spec = (found.producer_id, found.producer_epoch, found.coordinator_epoch)
    try:
        transactions.abort(cluster, place, *spec)
    except AskFailed as error:
        return _fail(f"Failed to abort transaction of producer {spec[0]} on partition {name}", error)
    return 0


def _force(cluster: AskedCluster, options: argparse.Namespace) -> int:
    from pykbroker.tools.cluster import transactions

    try:
        transactions.fence(cluster, options.transactional_id)
    except AskFailed as error:
        return _fail(f"Failed to force terminate transactionalId `{options.transactional_id}`", error)
    return 0


def _find_hanging(cluster: AskedCluster, options: argparse.Namespace) -> int:
    from pykbroker.tools.cluster import topics, transactions

    if options.topic is None and options.broker_id is None:
        raise ValueError(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        )
    if options.partition is not None and options.topic is None:
        raise ValueError("The --partition argument requires --topic to be provided")
    places = topics.places(cluster, options.topic, partition=options.partition, broker=options.broker_id)
    now_ms = int(time.time() * 1000)
    most_ms = options.max_transaction_timeout * 60_000
    search = transactions.hanging(cluster, places, now_ms - most_ms, options.broker_id)
    rows = [
        [
            hanging.place[0],
            str(hanging.place[1]),
            str(hanging.producer.producer_id),
            str(hanging.producer.producer_epoch),
            str(hanging.producer.coordinator_epoch),
            str(hanging.producer.started_at),
            str(hanging.producer.last_timestamp_ms),
            str((now_ms - hanging.producer.last_timestamp_ms) // 60_000),
        ]
        for hanging in search.found
    ]
    print(table([_HANGING, *rows]), end="")
    where = "leader" if options.broker_id is None else f"broker {options.broker_id}"
    for (topic, number), error in sorted(search.unread.items()):
        _fail(f"Failed to describe producers for partition {topic}-{number} on {where}", error)
    return int(bool(search.unread))
