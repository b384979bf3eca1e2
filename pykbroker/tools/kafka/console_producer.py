"""kafka-console-producer: lines of standard input become records of a topic."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pykbroker.tools.kafka import tool_clients
from pykbroker.tools.kafka.message_lines import BadLine, LineReader, LineRecord
from pykbroker.tools.kafka.reach import BAD_START, BOOTSTRAP, COMMAND_CONFIG, begun, said_of
from pykbroker.tools.kafka.tool_options import Accepted, Given, Options, key_values, say_error

if TYPE_CHECKING:
    from kafka import KafkaProducer

_NAME = "org.apache.kafka.tools.ConsoleProducer"
_LINE_READER = "org.apache.kafka.tools.LineMessageReader"
#: option -> the producer's property. An option that is given overrides the property; the option's default applies only
#: if the property is absent.
_MERGED = {
    "timeout": "linger.ms",
    "request-required-acks": "acks",
    "request-timeout-ms": "request.timeout.ms",
    "message-send-max-retries": "retries",
    "retry-backoff-ms": "retry.backoff.ms",
    "socket-buffer-size": "send.buffer.bytes",
    "max-memory-bytes": "buffer.memory",
    "batch-size": "batch.size",
    "max-partition-memory-bytes": "batch.size",
    "metadata-expiry-ms": "metadata.max.age.ms",
    "max-block-ms": "max.block.ms",
}
#: The codecs of a Java producer.
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

OPTIONS = Options(
    "This tool helps to read data from standard input and publish it to Kafka.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("batch-size", "batch.size of the producer.", "bytes", int, "16384"),
        Accepted("command-property", "A property of the producer; may be repeated.", "key=value"),
        Accepted("compression-codec", "none, gzip, snappy, lz4 or zstd.", "codec", is_optional=True),
        Accepted("line-reader", "The class that reads the lines.", "class", default=_LINE_READER),
        Accepted("max-block-ms", "max.block.ms of the producer.", "ms", int, "60000"),
        Accepted("max-memory-bytes", "Accepted; the Python client bounds its memory itself.", "bytes", int),
        Accepted("max-partition-memory-bytes", "The old name of --batch-size.", "bytes", int),
        Accepted("message-send-max-retries", "retries of the producer.", "count", int, "3"),
        Accepted("metadata-expiry-ms", "metadata.max.age.ms of the producer.", "ms", int, "300000"),
        Accepted("producer-property", "The old name of --command-property.", "key=value"),
        Accepted("producer.config", "The old name of --command-config.", "file"),
        Accepted("property", "The old name of --reader-property.", "key=value"),
        Accepted("reader-config", "A properties file for the reader of lines.", "file"),
        Accepted(
            "reader-property",
            "A property of the reader: parse.key, key.separator, parse.headers, headers.delimiter, "
            "headers.separator, headers.key.separator, ignore.error, null.marker.",
            "key=value",
        ),
        Accepted("request-required-acks", "acks of the producer.", "acks", default="-1"),
        Accepted("request-timeout-ms", "request.timeout.ms of the producer.", "ms", int, "1500"),
        Accepted("retry-backoff-ms", "retry.backoff.ms of the producer.", "ms", int, "100"),
        Accepted("socket-buffer-size", "send.buffer.bytes of the producer.", "bytes", int, "102400"),
        Accepted("sync", "Wait for each record before the next is sent."),
        Accepted("timeout", "linger.ms of the producer.", "ms", int, "1000"),
        Accepted("topic", "The topic.", "topic"),
    ],
)


def run(words: Sequence[str]) -> int:
    given = begun(OPTIONS, words, "topic")
    try:
        topic = given.text("topic") or ""
        reader = LineReader(_reader_properties(given))
        producer = _producer(given)
    except (BadLine, *BAD_START) as error:
        print(said_of(error), file=sys.stderr)
        return 1
    try:
        return _send_all(producer, topic, reader, in_step=given.has("sync"))
    finally:
        producer.close()


def _send_all(producer: KafkaProducer, topic: str, reader: LineReader, *, in_step: bool) -> int:
    from kafka.errors import KafkaError as PythonClientError

    status = 0
    try:
        for number, record in enumerate(reader.records(_lines()), start=1):
            _check_record(record, number)
            future = producer.send(topic, key=record.key, value=record.value, headers=record.headers)
            if in_step:
                future.get()
            else:
                future.add_errback(_say_lost, topic, record)
    except BadLine as error:
        print(f"org.apache.kafka.common.KafkaException: {error}", file=sys.stderr)
        status = 1
    except PythonClientError as error:
        say_error(error, _NAME)
        status = 1
    producer.flush()
    return status


def _check_record(record: LineRecord, number: int) -> None:
    """Raise BadLine for a record that kafka-python cannot send, though Apache Kafka's client can."""
    if record.key is None and record.value is None:
        raise BadLine(f"A record without key and value is not supported by pykbroker (line number {number})")
    if any(value is None for _, value in record.headers):
        raise BadLine(f"A header without a value is not supported by pykbroker (line number {number})")


def _say_lost(topic: str, record: LineRecord, error: Exception) -> None:
    """Print a line for a lost record and continue, as Apache Kafka's tool does."""
    key = "null" if record.key is None else f"{len(record.key)} bytes"
    value = "null" if record.value is None else f"{len(record.value)} bytes"
    print(
        f"ERROR Error when sending message to topic {topic} with key: {key}, value: {value} with error: {error}",
        file=sys.stderr,
    )


def _lines() -> Iterator[str]:
    """Yield the lines of standard input without their ends. As in Java, \\n, \\r and \\r\\n end a line."""
    prompts = sys.stdin.isatty() and sys.stdout.isatty()
    source = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace", newline=None)
    while True:
        if prompts:
            print(">", end="", flush=True)
        line = source.readline()
        if not line:
            return
        yield line.removesuffix("\n")


def _reader_properties(given: Given) -> dict[str, str]:
    from pykbroker.tools.cluster.client_properties import read_properties
    from pykbroker.tools.cluster.failure import NotServed

    option = OPTIONS.both(given, "reader-property", "property")
    if given.text("line-reader") not in (_LINE_READER, "kafka.tools.ConsoleProducer$LineMessageReader"):
        raise NotServed("--line-reader is not supported by pykbroker: it names a Java class")
    return {**read_properties(given.text("reader-config")), **key_values(given.texts(option))}


def _producer(given: Given) -> KafkaProducer:
    properties = producer_properties(given)
    from kafka import KafkaProducer

    bootstrap = given.text("bootstrap-server") or ""
    settings = tool_clients.settings_of(
        properties, KafkaProducer, "producer", bootstrap, without_a_word=("buffer.memory",)
    )
    settings["delivery_timeout_ms"] = max(
        settings.get("delivery_timeout_ms", 120_000), settings["linger_ms"] + settings["request_timeout_ms"]
    )
    _check_idempotence(settings, properties)
    return tool_clients.made(KafkaProducer, settings)


def _check_idempotence(settings: dict[str, Any], properties: dict[str, str]) -> None:
    """If acks is not `all`, turn idempotence off, unless a property requests it. A Java producer does the same."""
    if settings.get("acks", -1) != -1 and "enable.idempotence" not in properties:
        settings["enable_idempotence"] = False


def producer_properties(given: Given) -> dict[str, str]:
    """Return the Java producer's properties that the options stand for. Raises OptionError and ValueError."""
    from pykbroker.tools.cluster.client_properties import read_properties

    properties = read_properties(given.text(OPTIONS.both(given, "command-config", "producer.config")))
    properties |= key_values(given.texts(OPTIONS.both(given, "command-property", "producer-property")))
    codec = (given.text("compression-codec") or "gzip") if given.has("compression-codec") else "none"
    if codec not in _CODECS:
        raise ValueError(
            f"org.apache.kafka.common.config.ConfigException: Invalid value {codec} for configuration "
            f"compression.type: String must be one of: {', '.join(_CODECS)}"
        )
    properties["compression.type"] = codec
    properties.setdefault("client.id", "console-producer")
    for option, key in _MERGED.items():
        value = given.text(option) if option == "request-required-acks" else given.number(option)
        if value is not None and (given.has(option) or key not in properties):
            properties[key] = str(value)
    return properties
