"""kafka-e2e-latency: sends one record at a time and waits until a consumer has received it.

Its lines are Apache Kafka's. Both clients are kafka-python's, which add milliseconds of their own, so `pykbroker bench
end-to-end` is more precise.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.kafka.reach import BAD_START, BOOTSTRAP, reached, said_of
from pykbroker.tools.kafka.tool_options import Accepted, Given, OptionError, Options

if TYPE_CHECKING:
    from kafka import KafkaConsumer, KafkaProducer

_PATIENCE_MS: Final = 60_000
_PAUSE_SECONDS: Final = 0.05
_NEEDED: Final = ("bootstrap-server", "topic", "num-records", "producer-acks", "record-size")
_LEGACY: Final = (*_NEEDED, "command-config")
#: One letter is repeated, as in Apache Kafka's tool, so the bytes compress well.
_LETTERS: Final = range(65, 91)

OPTIONS = Options(
    "This tool measures end-to-end latency in Kafka by sending messages and timing their reception.",
    [
        BOOTSTRAP,
        Accepted("command-config", "A properties file for the clients.", "config-file", is_optional=True),
        Accepted("num-headers", "How many headers a record has.", "count", int, "0", is_optional=True),
        Accepted("num-records", "How many records are sent.", "count", int),
        Accepted("producer-acks", "1 or all.", "producer-acks"),
        Accepted("record-header-key-size", "Bytes of a header's key.", "bytes", int, "0", is_optional=True),
        Accepted("record-header-size", "Bytes of a header's value.", "bytes", int, "0", is_optional=True),
        Accepted("record-key-size", "Bytes of a record's key.", "bytes", int, "0", is_optional=True),
        Accepted("record-size", "Bytes of a record's value.", "bytes", int),
        Accepted("topic", "The topic.", "topic-name"),
    ],
)


def run(words: Sequence[str]) -> int:
    try:
        given = OPTIONS.parse(_named(words))
        OPTIONS.help_or_version(words, given)
        _check(given)
        return _measured(given)
    except OptionError as error:
        OPTIONS.end_with_usage(str(error))
    except (*BAD_START, RuntimeError) as error:
        print(said_of(error), file=sys.stderr)
        return 1


def _named(words: Sequence[str]) -> list[str]:
    """Return the words, with the names of options added if there are none: command lines before Apache Kafka 4.2 had no
    names. Raises ValueError for too few or too many words."""
    if not words or any(word.startswith("--") for word in words):
        return list(words)
    if len(words) not in (len(_NEEDED), len(_LEGACY)):
        raise ValueError(
            f"Invalid number of arguments. Expected 5 or 6 positional arguments, but got {len(words)}. "
            "Usage: bootstrap-server topic num-records producer-acks record-size [optional] command-config"
        )
    names = ", ".join(f"--{name}" for name in _LEGACY)
    print(
        "WARNING: Positional argument usage is deprecated and will be removed in Apache Kafka 5.0. "
        f"Please use named arguments instead: {names}"
    )
    return [part for name, word in zip(_LEGACY, words, strict=False) for part in (f"--{name}", word)]


def _check(given: Given) -> None:
    OPTIONS.require(given, *_NEEDED)
    if given.text("producer-acks") not in ("1", "all"):
        OPTIONS.end_with_usage(
            "Invalid value for --producer-acks. Latency testing requires synchronous acknowledgement. "
            "Please use '1' or 'all'."
        )
    if given.integer("num-records") <= 0:
        OPTIONS.end_with_usage("Value for --num-records must be a positive integer.")
    for name in ("record-size", "record-key-size", "record-header-key-size", "record-header-size", "num-headers"):
        if given.integer(name) < 0:
            OPTIONS.end_with_usage(f"Value for --{name} must be a non-negative integer.")


def _measured(given: Given) -> int:
    from kafka.errors import KafkaError as PythonClientError

    topic = given.text("topic") or ""
    try:
        consumer, producer = _clients(given)
        try:
            if topic not in consumer.topics():
                _create(given, topic)
            _assign(consumer, topic)
            latencies_ns = []
            for number in range(given.integer("num-records")):
                latencies_ns.append(_round_trip(producer, consumer, topic, given))
                if number % 1000 == 0:
                    print(f"{number}\t{latencies_ns[-1] / 1e6}")
        finally:
            producer.close()
            consumer.close()
    except (PythonClientError, AssertionError) as error:
        raise RuntimeError(str(error)) from None
    for line in summary(latencies_ns):
        print(line)
    return 0


def summary(latencies_ns: Sequence[int]) -> list[str]:
    """Return Apache Kafka's last two lines, in whole milliseconds, rounded down."""
    mean_ms = sum(latencies_ns) / len(latencies_ns) / 1e6
    ranked = sorted(latency // 1_000_000 for latency in latencies_ns)
    of = {share: ranked[int(len(ranked) * share)] for share in (0.5, 0.99, 0.999)}
    return [
        f"Avg latency: {mean_ms:.4f} ms",
        f"Percentiles: 50th = {of[0.5]}, 99th = {of[0.99]}, 99.9th = {of[0.999]}",
    ]


def _round_trip(producer: KafkaProducer, consumer: KafkaConsumer, topic: str, given: Given) -> int:
    """Send a record, and return the nanoseconds until the consumer has received it. Raises RuntimeError if the received
    record is another record."""
    key, value = _letters(given.integer("record-key-size")), _letters(given.integer("record-size"))
    header_key, header_size = given.integer("record-header-key-size"), given.integer("record-header-size")
    headers = [(_letters(header_key).decode(), _letters(header_size)) for _ in range(given.integer("num-headers"))]
    began = time.perf_counter_ns()
    producer.send(topic, key=key, value=value, headers=headers).get(_PATIENCE_MS / 1000)
    records = [record for found in consumer.poll(timeout_ms=_PATIENCE_MS).values() for record in found]
    took = time.perf_counter_ns() - began
    if not records:
        raise RuntimeError(f"poll() timed out before finding a result (timeout:[{_PATIENCE_MS}ms])")
    if (records[0].key, records[0].value, list(records[0].headers)) != (key, value, headers):
        raise RuntimeError("The message read did not match the message sent: does another producer write to the topic?")
    if len(records) != 1:
        raise RuntimeError(f"Only one result was expected during this test. We found [{len(records)}]")
    return took


def _letters(size: int) -> bytes:
    return bytes([random.choice(_LETTERS)]) * size  # noqa: S311  # a payload


def _create(given: Given, topic: str) -> None:
    from pykbroker.tools.cluster import topics
    from pykbroker.tools.cluster.topics import WantedTopic

    print(f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and replication factor = 1')
    try:
        with reached(given.text("bootstrap-server") or "", given.text("command-config")) as cluster:
            topics.create(cluster, WantedTopic(topic, partitions=1, replication_factor=1))
    except AskFailed as error:
        print(f"Creation of topic {topic} failed")
        raise RuntimeError(str(error)) from None


def _assign(consumer: KafkaConsumer, topic: str) -> None:
    """Assign every partition to the consumer, which reads each from its end."""
    from kafka import TopicPartition

    deadline = time.monotonic() + _PATIENCE_MS / 1000
    while not (numbers := consumer.partitions_for_topic(topic)):
        # The brokers learn of a new topic one after another.
        if time.monotonic() > deadline:
            raise RuntimeError(f"no broker knows the topic {topic}")
        time.sleep(_PAUSE_SECONDS)
    places = [TopicPartition(topic, number) for number in sorted(numbers)]
    consumer.assign(places)
    consumer.seek_to_end(*places)
    for place in places:
        consumer.position(place)


def _clients(given: Given) -> tuple[KafkaConsumer, KafkaProducer]:
    from kafka import KafkaConsumer, KafkaProducer

    from pykbroker.tools.cluster.bootstrap_list import bootstrap_addresses
    from pykbroker.tools.cluster.client_properties import python_settings, read_properties

    properties = read_properties(given.text("command-config"))
    servers = [str(address) for address in bootstrap_addresses(given.text("bootstrap-server") or "")]

    def settings(known: dict[str, Any]) -> dict[str, Any]:
        # One file serves both clients, so keys of the other client are ignored without a warning.
        return python_settings(properties, known)[0] | {"bootstrap_servers": servers}

    reading = {"auto_offset_reset": "latest", "enable_auto_commit": False, "fetch_max_wait_ms": 0, "group_id": None}
    acks = -1 if given.text("producer-acks") == "all" else 1
    sending = {"linger_ms": 0, "acks": acks, "enable_idempotence": acks == -1}
    consumer = KafkaConsumer(**settings(KafkaConsumer.DEFAULT_CONFIG) | reading)
    return consumer, KafkaProducer(**settings(KafkaProducer.DEFAULT_CONFIG) | sending)
