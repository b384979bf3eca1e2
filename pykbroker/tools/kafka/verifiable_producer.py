"""kafka-verifiable-producer: sends increasing integers and prints a line of JSON for each acknowledgement.

Its events are Apache Kafka's. The client is kafka-python's, which reports acknowledgements on a thread of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pykbroker.entry.lost_output import LostOutput
from pykbroker.tools.kafka import tool_clients
from pykbroker.tools.kafka.reach import BAD_START, said_of
from pykbroker.tools.kafka.stop_signals import StopSignals
from pykbroker.tools.kafka.tool_events import java_class, print_event
from pykbroker.tools.kafka.words import WordParser

if TYPE_CHECKING:
    from kafka import KafkaProducer

#: The longest time until a signal ends a pause.
_PAUSE_SECONDS: Final = 0.2


def run(words: Sequence[str]) -> int:
    parser = _parser()
    if not words:
        parser.print_help()
        return 0
    given = parser.parse_args(list(words))
    try:
        producer = _producer(given)
    except BAD_START as error:
        print(said_of(error), file=sys.stderr)
        return 1
    with StopSignals() as stopped:
        sending = _Sending(producer, given)
        began = time.monotonic()
        print_event("startup_complete")
        try:
            sending.send_all(stopped, began)
        except LostOutput:
            producer.close()
            raise
        producer.close()
        print_event("shutdown_complete")
        seconds = time.monotonic() - began
        rate = sending.acked / seconds if seconds else 0.0
        print_event(
            "tool_data", sent=sending.sent, acked=sending.acked, target_throughput=given.throughput, avg_throughput=rate
        )
    return stopped.status


class _Sending:
    """Sends the records, and counts the acknowledged ones."""

    def __init__(self, producer: KafkaProducer, given: argparse.Namespace) -> None:
        self._producer = producer
        self._topic: str = given.topic
        self._most: int = given.max_messages
        self._throughput: int = given.throughput
        self._prefix: int | None = given.value_prefix
        self._keys: int | None = given.repeating_keys
        self._create_time: int | None = None if given.message_create_time == -1 else given.message_create_time
        self.sent = 0
        self.acked = 0
        #: the failure of standard output on a thread of the producer, which logs it and goes on
        self._lost: LostOutput | None = None

    def send_all(self, stopped: StopSignals, began: float) -> None:
        """Send until the limit or a signal. Raises LostOutput."""
        while not stopped and not 0 <= self._most <= self.sent:
            if self._lost is not None:
                raise self._lost
            self._send(self.sent, began)
            self._pause(stopped, began)

    def _send(self, number: int, began: float) -> None:
        key = None if self._keys is None else str(number % self._keys)
        value = f"{number}" if self._prefix is None else f"{self._prefix}.{number}"
        create_time_ms = self._create_time
        if create_time_ms is not None:
            # As in Apache Kafka's tool, each record adds the whole time since the start to the create time.
            self._create_time = create_time_ms + int((time.monotonic() - began) * 1000)
        self.sent += 1
        try:
            future = self._producer.send(
                self._topic,
                value=value.encode(),
                key=None if key is None else key.encode(),
                timestamp_ms=create_time_ms,
            )
        except Exception as error:  # noqa: BLE001  # as Apache Kafka's tool: an event, and on with the next
            self._failed(key, value, error)
            return
        future.add_callback(self._acknowledged, key, value)
        future.add_errback(self._failed, key, value)

    def _acknowledged(self, key: str | None, value: str, where: Any) -> None:
        self.acked += 1
        self._report(
            "producer_send_success",
            key=key,
            value=value,
            offset=where.offset,
            topic=where.topic,
            partition=where.partition,
        )

    def _failed(self, key: str | None, value: str, error: BaseException) -> None:
        self._report(
            "producer_send_error",
            key=key,
            value=value,
            topic=self._topic,
            exception=java_class(error),
            message=str(error),
        )

    def _report(self, name: str, **fields: object) -> None:
        try:
            print_event(name, **fields)
        except LostOutput as error:
            self._lost = error

    def _pause(self, stopped: StopSignals, began: float) -> None:
        """Wait until the next record is due. A rate of 0 sends one record, and waits until a signal comes."""
        if self._throughput < 0:
            return
        while not stopped and self.sent != self._most and self._lost is None:
            if self._throughput:
                wait = began + self.sent / self._throughput - time.monotonic()
                if wait <= 0:
                    return
            else:
                wait = _PAUSE_SECONDS
            time.sleep(min(wait, _PAUSE_SECONDS))


def properties_of(given: argparse.Namespace) -> dict[str, str]:
    """Return the Java producer's properties that the options stand for; the file overrides them, as in Apache Kafka's
    tool."""
    from pykbroker.tools.cluster.client_properties import read_properties

    own = {"acks": str(given.acks), "retries": "0"}
    return own | read_properties(tool_clients.file_of(given.command_config, given.producer_config, "producer.config"))


def _producer(given: argparse.Namespace) -> KafkaProducer:
    from kafka import KafkaProducer

    properties = properties_of(given)
    settings = tool_clients.settings_of(properties, KafkaProducer, "producer", given.bootstrap_server)
    if not _may_be_idempotent(properties):
        settings["enable_idempotence"] = False
    return tool_clients.made(KafkaProducer, settings)


def _may_be_idempotent(properties: Mapping[str, str]) -> bool:
    """Return True if the producer may be idempotent. As in a Java producer, idempotence that was not requested is off
    without retries, and with acks other than all."""
    if "enable.idempotence" in properties:
        return True
    return properties["retries"] != "0" and properties["acks"] in ("-1", "all")


def _parser() -> argparse.ArgumentParser:
    parser = WordParser(
        prog="verifiable-producer",
        description="This tool produces increasing integers to the specified topic and prints JSON metadata to stdout "
        'on each "send" request, making externally visible which messages have been acked and which have not.',
    )
    add = parser.add_argument
    add("--topic", required=True, metavar="TOPIC", help="where messages go")
    add("--bootstrap-server", required=True, metavar="HOST:PORT,...", help="the brokers to connect to first")
    add("--max-messages", type=int, default=-1, metavar="COUNT", help="-1: until a signal comes")
    add("--throughput", type=int, default=-1, metavar="COUNT", help="messages a second; -1: as fast as it goes")
    add("--acks", type=int, default=-1, choices=(0, 1, -1), help="acks of the producer")
    add("--message-create-time", type=int, default=-1, metavar="MS", help="the time of the first message")
    add("--value-prefix", type=int, metavar="NUMBER", help="stands before each value, with a dot")
    add("--repeating-keys", type=int, metavar="COUNT", help="keys from 0 to COUNT - 1, again and again")
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--command-config", metavar="FILE", help="a properties file for the producer")
    files.add_argument("--producer.config", dest="producer_config", metavar="FILE", help="its old name")
    return parser
