"""kafka-console-share-consumer: print the records that a share group gives to a member on standard output.

Its options, lines and statuses are those of Apache Kafka 4.3.1. With --max-messages no more records are acquired than
are printed, where Apache Kafka's tool acquires more and releases them at its end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pykbroker.entry.lost_output import LostOutput, drop_output, output_bytes
from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.kafka.reach import BAD_START, BOOTSTRAP, COMMAND_CONFIG, said_of
from pykbroker.tools.kafka.record_text import DEFAULT_FORMATTER, RecordText, formatter_properties
from pykbroker.tools.kafka.stop_signals import StopSignals
from pykbroker.tools.kafka.tool_options import Accepted, Given, Options, key_values, say_error

if TYPE_CHECKING:
    from pykbroker.tools.cluster.delivered_records import DeliveredRecord
    from pykbroker.tools.cluster.share_group_reader import ShareGroupReader

_NAME = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
_DEFAULT = "console-share-consumer"
_RENAMED = (
    ("consumer-property", "command-property"),
    ("consumer-config", "command-config"),
    ("property", "formatter-property"),
)

OPTIONS = Options(
    "This tool helps to read data from Kafka topics using share groups and outputs it to standard output.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("command-property", "A property of the consumer; may be repeated.", "key=value"),
        Accepted("consumer-config", "The old name of --command-config.", "file"),
        Accepted("consumer-property", "The old name of --command-property.", "key=value"),
        Accepted("enable-systest-events", "Print a line when the consumer is shut down."),
        Accepted("formatter", "The class that prints records.", "class", default=DEFAULT_FORMATTER),
        Accepted("formatter-config", "A properties file for the formatter.", "file"),
        Accepted(
            "formatter-property",
            "A property of the formatter: print.timestamp, print.partition, print.offset, print.delivery, print.epoch, "
            "print.headers, print.key, print.value, key.separator, line.separator, headers.separator, "
            "null.literal, key.deserializer, value.deserializer, headers.deserializer.",
            "key=value",
        ),
        Accepted("group", f"The share group (default: {_DEFAULT}).", "group"),
        Accepted("key-deserializer", "The deserializer of keys.", "class"),
        Accepted("max-messages", "End after that many records.", "count", int),
        Accepted("property", "The old name of --formatter-property.", "key=value"),
        Accepted("reject", "Reject the printed records."),
        Accepted("reject-message-on-error", "Reject a record that cannot be printed, and go on."),
        Accepted("release", "Release the printed records."),
        Accepted("timeout-ms", "End when no record comes for that long.", "ms", int),
        Accepted("topic", "The topic.", "topic"),
        Accepted("value-deserializer", "The deserializer of values.", "class"),
    ],
)


def run(words: Sequence[str]) -> int:
    given = OPTIONS.read(words)
    _check(given)
    try:
        properties = consumer_properties(given)
        formatting = formatter_properties(given, [*given.texts("formatter-property"), *given.texts("property")])
        text = RecordText(formatting, given.text("formatter") or DEFAULT_FORMATTER)
        return _read(given, properties, text)
    except BAD_START as error:
        print(said_of(error), file=sys.stderr)
        return 1


def _check(given: Given) -> None:
    if not given.has("topic"):
        OPTIONS.end_with_usage("--topic is a required argument")
    OPTIONS.require(given, "bootstrap-server")
    if given.has("reject") and given.has("release"):
        OPTIONS.end_with_usage("At most one of --reject and --release may be specified.")
    for old, new in _RENAMED:
        if given.has(old) and given.has(new):
            OPTIONS.end_with_usage(f"Options --{old} and --{new} cannot be specified together.")
    for old, new in _RENAMED:
        if given.has(old):
            print(f"Option --{old} is deprecated and will be removed in a future version. Use --{new} instead.")


def consumer_properties(given: Given) -> dict[str, str]:
    """Return the Java consumer's properties that the options stand for."""
    from pykbroker.tools.cluster.client_properties import read_properties

    from_file = read_properties(given.text("command-config") or given.text("consumer-config"))
    extra = key_values([*given.texts("command-property"), *given.texts("consumer-property")])
    of_files = (from_file.get("group.id"), extra.get("group.id"))
    groups = dict.fromkeys(group for group in (given.text("group"), *of_files) if group is not None)
    if len(groups) > 1:
        OPTIONS.end_with_usage(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via "
            f"'--consumer-config') do not match. Detected group ids: {', '.join(map(repr, groups))}"
        )
    properties = {**from_file, **extra}
    properties.setdefault("client.id", _DEFAULT)
    properties["group.id"] = next(iter(groups), _DEFAULT)
    return properties


def _read(given: Given, properties: dict[str, str], text: RecordText) -> int:
    """Print records until the limit, the timeout or a signal ends the output; returns the exit status. Raises the
    errors of options and properties."""
    from pykbroker.tools.cluster.share_group_reader import WantedShare
    from pykbroker.tools.cluster.share_member_session import ACCEPT, REJECT, RELEASE
    from pykbroker.tools.kafka.tool_share_member import share_member

    kind = REJECT if given.has("reject") else RELEASE if given.has("release") else ACCEPT
    most = given.number("max-messages")
    count = None if most is None or most == -1 else max(0, most)
    timeout_ms = given.number("timeout-ms")
    if timeout_ms is not None and timeout_ms < 0:
        timeout_ms = None
    topic = given.text("topic") or ""
    wanted = WantedShare(properties["group.id"], [topic], kind, count=count, silence_ms=timeout_ms)
    printing = _Printing(text, rejects_on_error=given.has("reject-message-on-error"))
    bootstrap = given.text("bootstrap-server") or ""
    status = 0
    with share_member(properties, bootstrap, wanted, lambda *_: None) as reader, StopSignals(reader.stop) as stopped:
        try:
            printing.print_all(reader, timeout_ms)
        except LostOutput:
            print("Unable to write to standard out, closing consumer.", file=sys.stderr)
            drop_output()
        except Exception as error:  # noqa: BLE001  # as Apache Kafka's tool: said, and the consumer is closed
            print("ERROR Unknown error when running consumer: ", file=sys.stderr)
            say_error(error, _NAME)
            status = 1
    print(f"Processed a total of {printing.count} messages", file=sys.stderr)
    if given.has("enable-systest-events"):
        print("shutdown_complete")
    return stopped.status or status


class _Printing:
    """Prints records, and counts them."""

    def __init__(self, text: RecordText, *, rejects_on_error: bool) -> None:
        self._text = text
        self._rejects_on_error = rejects_on_error
        #: records that were read, also those that could not be printed
        self.count = 0
        #: how many records of the present batch are known to be printed
        self._printed = 0

    def print_all(self, reader: ShareGroupReader, timeout_ms: int | None) -> None:
        """Print the records of a member. `timeout_ms`: end when none comes for so long, or None. Raises ValueError for
        a record that cannot be printed, and LostOutput if standard output cannot be written. After an error the records
        that are not known to be printed are released."""
        since = time.monotonic()
        try:
            for batch in reader.batches():
                if batch:
                    try:
                        self._print(reader, batch)
                    except BaseException:
                        _release(reader, batch[self._printed :])
                        raise
                    since = time.monotonic()
                elif timeout_ms is not None and (time.monotonic() - since) * 1000 > timeout_ms:
                    _say_end("org.apache.kafka.common.errors.TimeoutException")
                    return
        except AskFailed as error:
            _say_end(f"{error.name}: {error}")

    def _print(self, reader: ShareGroupReader, batch: Sequence[DeliveredRecord]) -> None:
        from pykbroker.tools.cluster.share_member_session import REJECT

        # Until a flush succeeds, it is not known which records were read at the other end.
        self._printed = 0
        out = output_bytes()
        for place, record in enumerate(batch):
            self.count += 1
            line = b""
            try:
                line = self._text.written(record)
            except ValueError as error:
                if not self._rejects_on_error:
                    out.flush()
                    self._printed = place
                    raise
                print(f"ERROR Error processing message, rejecting this message: {error}", file=sys.stderr)
                reader.acknowledge_as(record, REJECT)
            out.write(line)
            if self._text.logs:
                key, value = (
                    None if part is None else part.decode("utf-8", "replace") for part in (record.key, record.value)
                )
                print(f"INFO CreateTime:{record.timestamp}, key:{key}, value:{value}", file=sys.stderr)
        out.flush()


def _release(reader: ShareGroupReader, records: Sequence[DeliveredRecord]) -> None:
    from pykbroker.tools.cluster.share_member_session import RELEASE

    for record in records:
        reader.acknowledge_as(record, RELEASE)


def _say_end(reason: str) -> None:
    """Print the lines of an end that Apache Kafka's tool does not count as a failure."""
    print("ERROR Error processing message, terminating consumer process: ", file=sys.stderr)
    print(reason, file=sys.stderr)
