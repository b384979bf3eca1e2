"""kafka-console-consumer: print the records of topics on standard output."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pykbroker.entry.lost_output import LostOutput, drop_output, output_bytes
from pykbroker.tools.kafka import tool_clients
from pykbroker.tools.kafka.reach import BAD_START, BOOTSTRAP, COMMAND_CONFIG, said_of
from pykbroker.tools.kafka.record_text import DEFAULT_FORMATTER, RecordText, formatter_properties
from pykbroker.tools.kafka.stop_signals import StopSignals
from pykbroker.tools.kafka.tool_options import Accepted, Given, Options, ToolEnded, key_values, say_error

if TYPE_CHECKING:
    from kafka import KafkaConsumer

_NAME = "org.apache.kafka.tools.consumer.ConsoleConsumer"
#: The interval at which a signal is checked.
_POLL_MS = 200
_AT_ONCE = 500
_ISOLATION = ("read_committed", "read_uncommitted")

OPTIONS = Options(
    "This tool helps to read data from Kafka topics and outputs it to standard output.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("command-property", "A property of the consumer; may be repeated.", "key=value"),
        Accepted("consumer-property", "The old name of --command-property.", "key=value"),
        Accepted("consumer.config", "The old name of --command-config.", "file"),
        Accepted("enable-systest-events", "Print a line when the consumer is shut down."),
        Accepted("formatter", "The class that prints records.", "class", default=DEFAULT_FORMATTER),
        Accepted("formatter-config", "A properties file for the formatter.", "file"),
        Accepted(
            "formatter-property",
            "A property of the formatter: print.timestamp, print.partition, print.offset, print.epoch, "
            "print.headers, print.key, print.value, key.separator, line.separator, headers.separator, "
            "null.literal, key.deserializer, value.deserializer, headers.deserializer.",
            "key=value",
        ),
        Accepted("from-beginning", "Begin with the first record where the group has no offset."),
        Accepted("group", "The consumer group.", "group"),
        Accepted("include", "A regular expression of the topics.", "regex"),
        Accepted("isolation-level", "read_committed leaves open and aborted transactions out.", "level",
                 default="read_uncommitted"),
        Accepted("key-deserializer", "The deserializer of keys.", "class"),
        Accepted("max-messages", "End after that many records.", "count", int),
        Accepted("offset", "Where to begin in the partition: a number, earliest or latest.", "offset",
                 default="latest"),
        Accepted("partition", "The one partition to read.", "partition", int),
        Accepted("property", "The old name of --formatter-property.", "key=value"),
        Accepted("skip-message-on-error", "Go on behind a record that cannot be printed."),
        Accepted("timeout-ms", "End when no record comes for that long.", "ms", int),
        Accepted("topic", "The topic.", "topic"),
        Accepted("value-deserializer", "The deserializer of values.", "class"),
    ],
)  # fmt: skip


def run(words: Sequence[str]) -> int:
    given = OPTIONS.read(words)
    try:
        _check(given)
        formatting = formatter_properties(given, given.texts(OPTIONS.both(given, "formatter-property", "property")))
        text = RecordText(formatting, given.text("formatter") or DEFAULT_FORMATTER)
        reading = _Reading(given, consumer_properties(given))
    except BAD_START as error:
        print(said_of(error), file=sys.stderr)
        return 1
    return reading.print_records(text)


def _check(given: Given) -> None:
    if given.has("topic") == given.has("include"):
        OPTIONS.end_with_usage("Exactly one of the following arguments is required: [topic], [include]")
    if given.has("partition"):
        if not given.has("topic"):
            OPTIONS.end_with_usage("The topic is required when partition is specified.")
        if given.has("from-beginning") and given.has("offset"):
            OPTIONS.end_with_usage("Options from-beginning and offset cannot be specified together.")
    elif given.has("offset"):
        OPTIONS.end_with_usage("The partition is required when offset is specified.")
    OPTIONS.require(given, "bootstrap-server")
    first_offset(given)


def first_offset(given: Given) -> int | str:
    """Return the position at which the read of the partition begins: a number, "earliest" or "latest"."""
    if not given.has("offset"):
        return "earliest" if given.has("from-beginning") else "latest"
    written = given.text("offset") or ""
    if written.lower() in ("earliest", "latest"):
        return written.lower()
    if not written.isdigit():
        OPTIONS.end_with_usage(
            f"The provided offset value '{written}' is incorrect. Valid values are 'earliest', 'latest', or a "
            "non-negative long."
        )
    return int(written)


def consumer_properties(given: Given) -> dict[str, str]:
    """Return the Java consumer's properties that the options stand for."""
    from pykbroker.tools.cluster.client_properties import read_properties

    from_file = read_properties(given.text(OPTIONS.both(given, "command-config", "consumer.config")))
    extra = key_values(given.texts(OPTIONS.both(given, "command-property", "consumer-property")))
    groups = [group for group in (given.text("group"), from_file.get("group.id"), extra.get("group.id")) if group]
    if len(set(groups)) > 1:
        OPTIONS.end_with_usage(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via "
            f"'--consumer.config') do not match. Detected group ids: {', '.join(map(repr, dict.fromkeys(groups)))}"
        )
    if groups and given.has("partition"):
        OPTIONS.end_with_usage("Options group and partition cannot be specified together.")
    properties = {**from_file, **extra}
    reset = properties.get("auto.offset.reset")
    if reset is None:
        properties["auto.offset.reset"] = "earliest" if given.has("from-beginning") else "latest"
    elif given.has("from-beginning") and reset != "earliest":
        print(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option",
            file=sys.stderr,
        )
        raise ToolEnded(1)
    properties.setdefault("client.id", "console-consumer")
    if given.has("isolation-level") or "isolation.level" not in properties:
        properties["isolation.level"] = given.text("isolation-level") or ""
    if properties["isolation.level"] not in _ISOLATION:
        raise ValueError(
            f"Invalid value {properties['isolation.level']} for configuration isolation.level: "
            f"String must be one of: {', '.join(_ISOLATION)}"
        )
    if groups:
        properties["group.id"] = groups[0]
    else:
        properties["group.id"] = f"console-consumer-{random.randrange(100_000)}"  # noqa: S311  # a name
        properties.setdefault("enable.auto.commit", "false")
    return properties


class _Reading:
    """One consumer from its start to its end."""

    def __init__(self, given: Given, properties: dict[str, str]) -> None:
        from kafka import KafkaConsumer, TopicPartition

        self._limit = given.number("max-messages")
        timeout_ms = given.number("timeout-ms")
        self._timeout_ms = None if timeout_ms is None or timeout_ms < 0 else timeout_ms
        self._skips = given.has("skip-message-on-error")
        self._tells_end = given.has("enable-systest-events")
        self._stopped = StopSignals()
        self.count = 0
        if properties.pop("group.protocol", "classic").lower() != "classic":
            from pykbroker.tools.cluster.failure import NotServed

            raise NotServed("group.protocol=consumer is not supported here: the Python client joins classic groups")
        bootstrap = given.text("bootstrap-server") or ""
        settings = tool_clients.settings_of(properties, KafkaConsumer, "consumer", bootstrap)
        partition = given.number("partition")
        if partition is not None:
            # This consumer of an assigned partition joins no group and commits no offsets, so it needs no group id.
            settings["group_id"] = None
        self._consumer: KafkaConsumer = tool_clients.made(KafkaConsumer, settings)
        topic = given.text("topic")
        if partition is not None:
            place = TopicPartition(topic, partition)
            self._consumer.assign([place])
            first = first_offset(given)
            if first == "earliest":
                self._consumer.seek_to_beginning(place)
            elif first == "latest":
                self._consumer.seek_to_end(place)
            else:
                self._consumer.seek(place, first)
        elif topic is not None:
            self._consumer.subscribe([topic])
        else:
            # Java matches the expression with the whole name of a topic.
            self._consumer.subscribe(pattern=f"^(?:{given.text('include')})$")

    def print_records(self, text: RecordText) -> int:
        """Print records until the limit, the timeout or a signal ends the output; returns the exit status."""
        with self._stopped:
            status = self._print_all(text)
        print(f"Processed a total of {self.count} messages", file=sys.stderr)
        if self._tells_end:
            print("shutdown_complete")
        return self._stopped.status or status

    def _print_all(self, text: RecordText) -> int:
        status = 0
        is_well = False
        try:
            out = output_bytes()
            for record in self._records():
                try:
                    out.write(text.written(record))
                except ValueError as error:
                    if not self._skips:
                        raise
                    print(f"ERROR Error processing message, skipping this message: {error}", file=sys.stderr)
                if text.logs:
                    key, value = (
                        None if part is None else part.decode("utf-8", "replace") for part in (record.key, record.value)
                    )
                    print(f"INFO CreateTime:{record.timestamp}, key:{key}, value:{value}", file=sys.stderr)
            is_well = True
        except LostOutput:
            print("Unable to write to standard out, closing consumer.", file=sys.stderr)
            drop_output()
        except Exception as error:  # noqa: BLE001  # as Apache Kafka's tool: said, and the consumer is closed
            print("ERROR Unknown error when running consumer: ", file=sys.stderr)
            say_error(error, _NAME)
            status = 1
        finally:
            # Records of the last poll may not be printed, and the positions are after all of them.
            self._consumer.close(autocommit=is_well)
        return status

    def _records(self) -> Iterator[Any]:
        """Yield one record after another. A record counts as read when it is yielded, not when it is fetched."""
        out = output_bytes()
        while self._limit is None or self._limit < 0 or self.count < self._limit:
            out.flush()
            found = self._next()
            if found is None:
                return
            for records in found.values():
                for record in records:
                    self.count += 1
                    yield record
        out.flush()

    def _next(self) -> dict[Any, list[Any]] | None:
        """Return the next records, or None if the time is over or a signal came."""
        most = _AT_ONCE
        if self._limit is not None and self._limit >= 0:
            most = min(most, self._limit - self.count)
        from pykbroker.tools.cluster.topic_reader import join_again

        begin = time.monotonic()
        while not self._stopped:
            wait_ms = _POLL_MS
            if self._timeout_ms is not None:
                left_ms = self._timeout_ms - (time.monotonic() - begin) * 1000
                wait_ms = max(0, min(wait_ms, int(left_ms) + 1))
            join_again(self._consumer)
            found: dict[Any, list[Any]] = self._consumer.poll(timeout_ms=wait_ms, max_records=most)
            if found:
                return found
            if self._timeout_ms is not None and (time.monotonic() - begin) * 1000 > self._timeout_ms:
                print("ERROR Error processing message, terminating consumer process: ", file=sys.stderr)
                print("org.apache.kafka.common.errors.TimeoutException", file=sys.stderr)
                return None
        return None
