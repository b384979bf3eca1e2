"""`pykbroker produce`: send standard input, or files, as records of a topic."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from pykbroker.entry import failures
from pykbroker.tools.cluster.escapes import as_bytes, unescaped
from pykbroker.tools.cluster.json_records import BadInput, NewRecord
from pykbroker.tools.cluster.record_input import JsonRecords, RecordMaker, Template, Written, header_of, pieces
from pykbroker.tools.cluster.time_words import TIMES
from pykbroker.tools.commands import drawn_progress
from pykbroker.tools.commands.client_options import ClientOptions, PropertyOption, client_options
from pykbroker.tools.commands.command_group import Command, excluding
from pykbroker.tools.commands.completion import topic_names
from pykbroker.tools.commands.failure_lines import FailureLines
from pykbroker.tools.commands.output import Output, output_option
from pykbroker.tools.commands.python_client import ENCODING, reach, settings_for
from pykbroker.tools.commands.time_options import now_ms, time_ms
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker.tools.cluster.failure import AskFailed
    from pykbroker.tools.cluster.topic_sender import Sent, TopicSender

_BLOCK_BYTES: Final = 1 << 16
_ACKS: Final = {"0": 0, "1": 1, "all": -1, "-1": -1}
#: The progress on a terminal is drawn once per this many records.
_TELL_EVERY: Final = 256


@dataclass(frozen=True, slots=True)
class SentRecords:
    """The output of `-o json`."""

    topic: str
    records: int
    failed: int
    bytes: int


@click.command(
    "produce",
    cls=Command,
    example="pykbroker produce orders -K : -H source=shell < lines.txt"
    "\npykbroker produce copy-of-orders -J -l orders.json"
    "\npykbroker produce pictures -k cat cat.jpg",
)
@click.argument("topic", shell_complete=topic_names)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@client_options
@output_option
@click.option("-l", "--lines", metavar="FILE", help="Read this, not standard input.")
@click.option("-D", "--delimiter", metavar="TEXT", help="What ends a record (default: \\n); \\xNN is a byte.")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="What ends the key of a record.")
@click.option("-k", "--key", metavar="TEXT", help="The key of records that have none of their own.")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of every record (may be repeated)."
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(-1),
    metavar="N",
    help="The partition of every record; -1: the producer chooses, whatever JSON says.",
)
@click.option("--timestamp", callback=time_ms, metavar="TIME", help=f"The timestamp of every record: {TIMES}.")
@click.option("-Z", "--null-empty", is_flag=True, help="Send empty keys and values as null.")
@click.option(
    "-J",
    "--json",
    "is_json",
    is_flag=True,
    help="Read a JSON object a line, as `pykbroker consume -J` and kcat -J print it. A key, a payload (or value) and "
    'headers may be objects: {"key": 7, "payload": {"id": 1}, "headers": {"source": "shell"}}.',
)
@click.option("--key-as", type=ENCODING, default="text", help="How keys are written (default: text, as they are).")
@click.option("--value-as", type=ENCODING, default="text", help="How values are written (default: text, as they are).")
@click.option("-c", "--count", type=click.IntRange(0), metavar="N", help="End after this many records.")
@click.option(
    "-z",
    "--compression",
    cls=PropertyOption,
    key="compression.type",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="The codec of batches (default: none).",
)
@click.option(
    "--acks",
    cls=PropertyOption,
    key="acks",
    type=click.Choice(list(_ACKS)),
    help="Which replicas acknowledge (default: all).",
)
@click.option(
    "--idempotence/--no-idempotence",
    "idempotence",
    cls=PropertyOption,
    key="enable.idempotence",
    default=None,
    help="Whether retries may write a record twice (default: they may not, with acks=all).",
)
@click.option("-q", "--quiet", is_flag=True, help="Do not say on standard error what was sent.")
@click.pass_context
def command(ctx: click.Context, /, client: ClientOptions, out: Output, topic: str, **words: Any) -> int:
    """Send lines, files or JSON as records of a topic.

    The lines are those of standard input. Each FILE is the value of one record. An empty line is a record with an empty
    value. The first ten records that fail get one line each on standard error. The others are sent, and the exit status
    is 1. The last line on standard error says how many were sent.
    """
    from pykbroker.tools.cluster.topic_sender import TopicSender

    _check(ctx, words)
    records = _records(ctx, words)
    settings = _settings(client, words)
    reach(client)
    lines = FailureLines("records failed")
    is_partition_missing = threading.Event()
    sender = TopicSender(topic, settings, partial(_say_lost, lines, is_partition_missing))
    status = None
    try:
        with lines:
            status = _send_all(sender, islice(records, words["count"]))
    finally:
        if words["is_json"] and is_partition_missing.is_set():
            failures.say("`-p -1` lets the producer choose partitions, whatever JSON says")
        # Bad input ends the command with an error. Then the user needs to know how many records were sent before it.
        if not (out.is_json or words["quiet"] or (status is None and sender.sent == type(sender.sent)())):
            click.echo(_said_of(topic, sender.sent), err=True)
    if out.is_json:
        sent = sender.sent
        out.document(SentRecords(topic, sent.records, sent.failed, sent.bytes))
    return status or int(sender.sent.failed > 0)


def _check(ctx: click.Context, words: dict[str, Any]) -> None:
    for name in ("delimiter", "key_delimiter", "null_empty"):
        excluding(ctx, "is_json", name)
    if words["is_json"] and (words["files"] or {words["key_as"], words["value_as"]} != {"text"}):
        raise click.UsageError("--json goes with neither files nor encodings: each line says its own.", ctx)
    if words["files"] and (words["lines"] or words["key_delimiter"] or words["delimiter"]):
        raise click.UsageError("A FILE is one record: it goes with neither --lines nor delimiters.", ctx)
    if words["idempotence"] and words["acks"] not in (None, "all", "-1"):
        raise click.UsageError(f"--idempotence needs --acks all, not {words['acks']}.", ctx)


def _settings(client: ClientOptions, words: dict[str, Any]) -> dict[str, Any]:
    from kafka import KafkaProducer

    settings = settings_for(client, KafkaProducer.DEFAULT_CONFIG)
    if words["compression"] is not None:
        settings["compression_type"] = None if words["compression"] == "none" else words["compression"]
    if words["acks"] is not None:
        settings["acks"] = _ACKS[words["acks"]]
    if words["idempotence"] is not None:
        settings["enable_idempotence"] = words["idempotence"]
    elif settings.get("acks", -1) != -1:
        # Idempotence needs acks=all, so it is turned off with other acks, as in a Java producer.
        settings.setdefault("enable_idempotence", False)
    return settings


# -- the input --------------------------------------------------------------------------------------------------------


def _records(ctx: click.Context, words: dict[str, Any]) -> Iterator[NewRecord]:
    """Return the records. Errors in options are raised before the first record."""
    try:
        template = _template(words)
        between = words["key_delimiter"]
        written = Written(
            delimiter=unescaped(words["delimiter"] or "\\n"),
            key_delimiter=None if between is None else unescaped(between),
            empty_is_null=words["null_empty"],
            key=words["key_as"],
            value=words["value_as"],
        )
    except ValueError as error:
        raise click.UsageError(f"{error}.", ctx) from None
    if b"" in (written.delimiter, written.key_delimiter):
        raise click.UsageError("A delimiter has at least one character.", ctx)
    if words["files"]:
        return _of_files(words["files"], RecordMaker(written, template))
    read = JsonRecords(template, now_ms()).record if words["is_json"] else RecordMaker(written, template).record
    return _of_lines(words["lines"], written.delimiter, read)


def _template(words: dict[str, Any]) -> Template:
    """Return the defaults of every record. Raises ValueError."""
    partition = words["partition"]
    return Template(
        key=None if words["key"] is None else as_bytes(words["key"]),
        headers=[header_of(text) for text in words["headers"]],
        partition=None if partition == -1 else partition,
        timestamp_ms=words["timestamp"],
        any_partition=partition == -1,
    )


def _of_files(paths: tuple[str, ...], lines: RecordMaker) -> Iterator[NewRecord]:
    for path in paths:
        with open(path, "rb") as file:
            content = file.read()
        try:
            yield lines.whole(content)
        except BadInput as error:
            raise click.ClickException(f"{path}: {error}") from None


def _of_lines(path: str | None, delimiter: bytes, read: Callable[[bytes], NewRecord]) -> Iterator[NewRecord]:
    with nullcontext(sys.stdin.buffer) if path is None else open(path, "rb") as source:
        for number, piece in enumerate(pieces(_blocks(source), delimiter), start=1):
            try:
                yield read(piece)
            except BadInput as error:
                raise click.ClickException(f"line {number}: {error}") from None


def _blocks(source: BinaryIO) -> Iterator[bytes]:
    """Yield the available bytes without waiting for a whole block."""
    assert isinstance(source, io.BufferedIOBase)
    while block := source.read1(_BLOCK_BYTES):
        yield block


# -- the records ------------------------------------------------------------------------------------------------------


def _send_all(sender: TopicSender, records: Iterator[NewRecord]) -> int:
    """Send the records, also those before bad input. Returns 0, or 130 after Ctrl-C."""
    with closing(sender), drawn_progress.counter() as tell:
        try:
            for number, record in enumerate(records):
                sender.send(record)
                if number % _TELL_EVERY == 0:
                    tell(sender.sent.records, sender.sent.bytes)
        except KeyboardInterrupt:
            return 130
    return 0


def _said_of(topic: str, sent: Sent) -> str:
    said = f"Sent {sent.records} record{'s' * (sent.records != 1)} ({sent.bytes} bytes) to {topic}"
    return f"{said}, and {sent.failed} failed." if sent.failed else f"{said}."


def _say_lost(
    lines: FailureLines, is_partition_missing: threading.Event, number: int, record: NewRecord, failure: AskFailed
) -> None:
    if record.partition is not None and failure.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        is_partition_missing.set()
    key = "" if record.key is None else f" (key {record.key[:40].decode('utf-8', 'replace')!r})"
    lines.say(f"record {number}{key}: {failures.said_of(failure)}")
