"""kafka-verifiable-consumer: reads a topic as a member of a group and prints its events as lines of JSON.

Its events are Apache Kafka's. The client is kafka-python's, which can only join classic groups.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pykbroker.entry.lost_output import LostOutput, drop_output
from pykbroker.tools.kafka import tool_clients
from pykbroker.tools.kafka.reach import BAD_START, said_of
from pykbroker.tools.kafka.stop_signals import StopSignals
from pykbroker.tools.kafka.tool_events import print_event, print_record
from pykbroker.tools.kafka.tool_options import say_error
from pykbroker.tools.kafka.words import WordParser

if TYPE_CHECKING:
    from kafka import KafkaConsumer

#: The interval at which a signal is checked.
_POLL_MS: Final = 200
#: Java's name of an assignor -> kafka-python's module and class
_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": ("range", "RangePartitionAssignor"),
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": ("roundrobin", "RoundRobinPartitionAssignor"),
    "org.apache.kafka.clients.consumer.StickyAssignor": ("sticky", "StickyPartitionAssignor"),
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": ("cooperative_sticky", "CooperativeStickyAssignor"),
}


def run(words: Sequence[str]) -> int:
    parser = _parser()
    if not words:
        parser.print_help()
        return 0
    given = parser.parse_args(list(words))
    try:
        consumer = _consumer(given)
    except BAD_START as error:
        print(said_of(error), file=sys.stderr)
        return 1
    with StopSignals() as stopped:
        try:
            _report(consumer, given, stopped)
        except Exception as error:
            lost = _lost_output(error)
            if lost is None:
                raise
            # The consumer still leaves its group, and reports that to nobody.
            drop_output()
            consumer.close()
            raise lost from None
    return stopped.status


def _report(consumer: KafkaConsumer, given: argparse.Namespace, stopped: StopSignals) -> None:
    """Read until the limit or a signal, and print the events."""
    print_event("startup_complete")
    try:
        _read(consumer, given, stopped)
    except Exception as error:
        if _lost_output(error) is not None:
            raise
        # As Apache Kafka's tool, which logs the error and closes the consumer.
        say_error(error, "org.apache.kafka.tools.VerifiableConsumer")
    if stopped:
        print_event("shutdown_requested")
    consumer.close()
    print_event("shutdown_complete")
    if not stopped:
        # In Apache Kafka's tool, its normal end also requests the shutdown.
        print_event("shutdown_requested")


def _lost_output(error: BaseException) -> LostOutput | None:
    """Return the failure of standard output. kafka-python raises an error of a listener as the cause of its own."""
    found = error if isinstance(error, LostOutput) else error.__cause__
    return found if isinstance(found, LostOutput) else None


def _read(consumer: KafkaConsumer, given: argparse.Namespace, stopped: StopSignals) -> None:
    from pykbroker.tools.cluster.topic_reader import join_again

    consumer.subscribe([given.topic], listener=_listener())
    consumed = 0
    while not stopped and not 0 <= given.max_messages <= consumed:
        join_again(consumer)
        found = consumer.poll(timeout_ms=_POLL_MS)
        if not found:
            continue
        left = None if given.max_messages < 0 else given.max_messages - consumed
        offsets = print_records(found, left, verbose=given.verbose)
        consumed += sum(count for _, count in offsets.values())
        if not given.enable_autocommit:
            _commit(consumer, {place: offset for place, (offset, _) in offsets.items()})


def print_records(found: Mapping[Any, Sequence[Any]], left: int | None, *, verbose: bool) -> dict[Any, tuple[int, int]]:
    """Print the events of one poll for at most `left` records. Return, for each partition with such records, the offset
    after the last of them, and their number."""
    offsets: dict[Any, tuple[int, int]] = {}
    summaries = []
    for place, all_records in found.items():
        records = all_records[:left]
        if not records:
            continue
        last = records[-1].offset
        offsets[place] = (last + 1, len(records))
        summaries.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "count": len(records),
                "minOffset": records[0].offset,
                "maxOffset": last,
            }
        )
        for record in records if verbose else ():
            print_record(record)
        if left is not None:
            left -= len(records)
            if left <= 0:
                break
    print_event("records_consumed", count=sum(map(len, found.values())), partitions=summaries)
    return offsets


def _commit(consumer: KafkaConsumer, offsets: Mapping[Any, int]) -> None:
    from kafka import OffsetAndMetadata
    from kafka.errors import KafkaError as PythonClientError

    failure: dict[str, object] = {}
    try:
        consumer.commit({place: OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()})
    except PythonClientError as error:
        failure["error"] = str(error)
    committed = [{**_place(place), "offset": offset} for place, offset in offsets.items()]
    print_event("offsets_committed", offsets=committed, **failure, success=not failure)


def _listener() -> Any:
    from kafka import ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
        def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
            if revoked:
                print_event("partitions_revoked", partitions=[_place(place) for place in revoked])

        def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
            print_event("partitions_assigned", partitions=[_place(place) for place in assigned])

    return Listener()


def _place(place: Any) -> dict[str, object]:
    return {"topic": place.topic, "partition": place.partition}


def properties_of(given: argparse.Namespace) -> dict[str, str]:
    """Return the Java consumer's properties that the options stand for; options override the file."""
    from pykbroker.tools.cluster.client_properties import read_properties

    properties = read_properties(tool_clients.file_of(given.command_config, given.consumer_config, "consumer.config"))
    own = {
        "group.id": given.group_id,
        "enable.auto.commit": str(given.enable_autocommit).lower(),
        "auto.offset.reset": given.reset_policy,
    }
    if given.session_timeout is not None:
        own["session.timeout.ms"] = str(given.session_timeout)
    if given.group_instance_id is not None:
        own["group.instance.id"] = given.group_instance_id
    return properties | own


def _consumer(given: argparse.Namespace) -> KafkaConsumer:
    from pykbroker.tools.cluster.failure import NotServed

    if given.group_protocol.lower() != "classic":
        raise NotServed("--group-protocol consumer is not supported here: the Python client joins classic groups")
    from kafka import KafkaConsumer

    settings = tool_clients.settings_of(properties_of(given), KafkaConsumer, "consumer", given.bootstrap_server)
    settings["partition_assignment_strategy"] = [_assignor(name) for name in given.assignment_strategy.split(",")]
    return tool_clients.made(KafkaConsumer, settings)


def _assignor(name: str) -> Any:
    import importlib

    from pykbroker.tools.cluster.failure import NotServed

    if name.strip() not in _ASSIGNORS:
        raise NotServed(f"--assignment-strategy {name} is not supported here: it names a Java class")
    module, of_module = _ASSIGNORS[name.strip()]
    return getattr(importlib.import_module(f"kafka.coordinator.assignors.{module}"), of_module)


def _parser() -> argparse.ArgumentParser:
    parser = WordParser(
        prog="verifiable-consumer",
        description="This tool consumes messages from a specific topic and emits consumer events (e.g. group "
        "rebalances, received messages, and offsets committed) as JSON objects to STDOUT.",
    )
    add = parser.add_argument
    add("--bootstrap-server", required=True, metavar="HOST:PORT,...", help="the brokers to connect to first")
    add("--topic", required=True, metavar="TOPIC", help="where messages come from")
    add("--group-protocol", default="classic", metavar="PROTOCOL", help="classic; the client knows no other")
    add("--group-remote-assignor", metavar="NAME", help="has no effect in classic groups")
    add("--group-id", required=True, metavar="GROUP", help="the group")
    add("--group-instance-id", metavar="ID", help="makes the consumer a static member")
    add("--max-messages", type=int, default=-1, metavar="COUNT", help="-1: until a signal comes")
    add("--session-timeout", type=int, metavar="MS", help="session.timeout.ms of the consumer")
    add("--verbose", action="store_true", help="print each record")
    add("--enable-autocommit", action="store_true", help="let the consumer commit by itself")
    add("--reset-policy", default="earliest", metavar="POLICY", help="earliest, latest or none")
    add("--assignment-strategy", default=next(iter(_ASSIGNORS)), metavar="CLASS", help="Java's name of an assignor")
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--command-config", metavar="FILE", help="a properties file for the consumer")
    files.add_argument("--consumer.config", dest="consumer_config", metavar="FILE", help="its old name")
    return parser
