"""kafka-verifiable-share-consumer: reads a topic as a member of a share group and prints its events as lines of JSON.

Its options and events are those of Apache Kafka 4.3.1, so the event shutdown_requested of 4.4 is not there. The option
--ack-pattern is that of 4.4. In every mode a batch is acknowledged before the next one is requested.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.kafka.reach import BAD_START, reached, said_of
from pykbroker.tools.kafka.stop_signals import StopSignals
from pykbroker.tools.kafka.tool_events import print_event, print_record
from pykbroker.tools.kafka.tool_options import say_error
from pykbroker.tools.kafka.words import WordParser

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import PartitionName
    from pykbroker.tools.cluster.delivered_records import DeliveredRecord
    from pykbroker.tools.cluster.share_group_reader import ShareGroupReader

_NAME: Final = "org.apache.kafka.tools.VerifiableShareConsumer"
_MODES: Final = ("auto", "sync", "async")
_STRATEGIES: Final = ("earliest", "latest")
#: the types of --ack-pattern, as ShareAcknowledge has them
_RENEW: Final = "RENEW"
_KINDS: Final = {"ACCEPT": 1, "RELEASE": 2, "REJECT": 3, _RENEW: 4}
_RESET: Final = "share.auto.offset.reset"


def run(words: Sequence[str]) -> int:
    parser = _parser()
    if not words:
        parser.print_help()
        return 0
    given = parser.parse_args(list(words))
    pattern = [kind.strip().upper() for kind in given.ack_pattern.split(",")] if given.ack_pattern else []
    if pattern and given.acknowledgement_mode.lower() == "auto":
        parser.error("--ack-pattern requires --acknowledgement-mode to be 'sync' or 'async', not 'auto'")
    if pattern and set(pattern) == {_RENEW}:
        parser.error(
            "--ack-pattern must contain at least one non-RENEW type; a pattern of only 'renew' would re-deliver every "
            "record indefinitely without ever resolving it"
        )
    try:
        for kind in pattern:
            if kind not in _KINDS:
                raise ValueError(f"No enum constant org.apache.kafka.clients.consumer.AcknowledgeType.{kind}")
        if given.acknowledgement_mode.lower() not in _MODES:
            name = given.acknowledgement_mode.upper()
            raise ValueError(f"No enum constant {_NAME}.AcknowledgementMode.{name}")
        return _read(given, pattern)
    except BAD_START as error:
        print(said_of(error), file=sys.stderr)
        return 1


def _read(given: argparse.Namespace, pattern: Sequence[str]) -> int:
    """Read until the limit or a signal; returns the exit status. `pattern`: the types of acknowledgements that records
    get in turn, by their offsets; all are accepted if it is empty. Raises the errors of properties."""
    from pykbroker.tools.cluster.share_group_reader import WantedShare
    from pykbroker.tools.cluster.share_member_session import ACCEPT
    from pykbroker.tools.kafka.tool_share_member import share_member

    wanted = WantedShare(given.group_id, [given.topic], ACCEPT)
    events = _Events(pattern, verbose=given.verbose)
    member = share_member(properties_of(given), given.bootstrap_server, wanted, events.acknowledged)
    with member as reader, StopSignals(reader.stop) as stopped:
        print_event("startup_complete")
        try:
            if given.offset_reset_strategy:
                _set_strategy(given, stopped)
            _consume(reader, events, given.max_messages)
        except AskFailed as error:
            print("ERROR Error during processing, terminating share consumer process: ", file=sys.stderr)
            say_error(error, _NAME)
    print_event("shutdown_complete")
    return stopped.status


def properties_of(given: argparse.Namespace) -> dict[str, str]:
    """Return the Java consumer's properties that the options stand for. Raises OSError and ConfigError for the file."""
    from pykbroker.tools.cluster.client_properties import read_properties

    own_name = {"client.id": f"consumer-{given.group_id}-1"}
    return own_name | read_properties(given.command_config) | {"group.id": given.group_id}


def _set_strategy(given: argparse.Namespace, stopped: StopSignals) -> None:
    """Store where the group begins in partitions that it has not read yet. Raises AskFailed."""
    from pykbroker.tools.cluster import configs

    strategy = given.offset_reset_strategy.lower()
    if strategy not in _STRATEGIES:
        raise AskFailed(f"Unknown share auto offset reset strategy: {strategy}", "java.lang.IllegalArgumentException")
    with reached(given.bootstrap_server, given.command_config) as cluster:
        stopped.also(cluster.give_up)
        configs.alter(cluster, (configs.ResourceKind.GROUP, given.group_id), configs.changes_of({_RESET: strategy}))
    print_event("offset_reset_strategy_set", offsetResetStrategy=strategy)


def _consume(reader: ShareGroupReader, events: _Events, most: int) -> None:
    """`most`: end when so many records are acknowledged, or never if it is negative."""
    if 0 <= most <= events.count:
        return
    for batch in reader.batches():
        if not batch:
            continue
        events.consumed(batch)
        for record in batch if events.pattern else ():
            reader.acknowledge_as(record, _KINDS[events.kind_of(record)])
        reader.acknowledge()
        if 0 <= most <= events.count:
            return


class _Events:
    """Prints the events of records and of acknowledgements."""

    def __init__(self, pattern: Sequence[str] = (), *, verbose: bool) -> None:
        self._verbose = verbose
        self.pattern = pattern
        #: the types of the acknowledgements that have no answer yet
        self._given: dict[PartitionName, dict[int, str]] = {}
        #: the places in the pattern at which offsets go on whose locks were renewed
        self._next: dict[PartitionName, dict[int, int]] = {}
        #: records whose acknowledgement succeeded
        self.count = 0

    def kind_of(self, record: DeliveredRecord) -> str:
        """Return the type that the pattern has for a record. It follows from the offset. A record that is renewed comes
        again, and gets the next type then."""
        place, offset, count = (record.topic, record.partition), record.offset, len(self.pattern)
        at = self._next.get(place, {}).pop(offset, offset % count)
        kind = self._given.setdefault(place, {})[offset] = self.pattern[at]
        if kind == _RENEW:
            self._next.setdefault(place, {})[offset] = (at + 1) % count
        return kind

    def consumed(self, batch: Sequence[DeliveredRecord]) -> None:
        """Print one batch. Each partition is there once."""
        offsets: dict[PartitionName, list[int]] = {}
        for record in batch:
            offsets.setdefault((record.topic, record.partition), []).append(record.offset)
        for record in batch if self._verbose else ():
            print_record(record)
        summaries = [_summary(place, numbers) for place, numbers in offsets.items()]
        print_event("records_consumed", count=len(batch), partitions=summaries)

    def acknowledged(self, place: PartitionName, offsets: Sequence[int], error: AskFailed | None) -> None:
        """Print the result of one partition. `error`: None if the records are done."""
        if not offsets:
            return
        if error is None:
            self.count += len(offsets)
        more: dict[str, object] = {} if error is None else {"error": str(error)}
        given = self._given.pop(place, {})
        if error is None and self.pattern:
            more["ackTypeCounts"] = dict(Counter(given[offset] for offset in offsets))
        print_event(
            "offsets_acknowledged",
            count=len(offsets),
            partitions=[_summary(place, offsets)],
            success=error is None,
            **more,
        )


def _summary(place: PartitionName, offsets: Sequence[int]) -> dict[str, object]:
    return {"topic": place[0], "partition": place[1], "count": len(offsets), "offsets": list(offsets)}


def _parser() -> argparse.ArgumentParser:
    parser = WordParser(
        prog="verifiable-share-consumer",
        description="This tool creates a share group and consumes messages from a specific topic and emits share "
        "consumer events (e.g. share consumer startup, received messages, and offsets acknowledged) as JSON objects to "
        "STDOUT.",
    )
    add = parser.add_argument
    add("--bootstrap-server", required=True, metavar="HOST:PORT,...", help="the brokers to connect to first")
    add("--topic", required=True, metavar="TOPIC", help="where messages come from")
    add("--group-id", required=True, metavar="GROUP", help="the share group")
    add("--max-messages", type=int, default=-1, metavar="COUNT", help="-1: until a signal comes")
    add("--verbose", action="store_true", help="print each record")
    add("--acknowledgement-mode", default="auto", metavar="MODE", help="auto, sync or async")
    add(
        "--ack-pattern",
        default="",
        metavar="PATTERN",
        help="accept, release, reject or renew, separated by commas, in turn",
    )
    add("--offset-reset-strategy", default="", metavar="STRATEGY", help="where the group begins: earliest or latest")
    add("--command-config", metavar="FILE", help="a properties file for the consumer")
    return parser
