"""`pykbroker consume`: print the records of topics on standard output."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from pykbroker.entry import failures
from pykbroker.entry.lost_output import LostOutput, drop_output
from pykbroker.tools.cluster.bounds import BEGINNING, END, STORED, Bound, BoundKind, parsed_bound
from pykbroker.tools.cluster.escapes import unescaped
from pykbroker.tools.cluster.json_records import JsonFormat
from pykbroker.tools.cluster.record_format import DelimitedFormat, FormatString, Shown
from pykbroker.tools.cluster.text_pattern import is_pattern
from pykbroker.tools.cluster.time_words import TIMES
from pykbroker.tools.commands.client_options import ClientOptions, PropertyOption, client_options
from pykbroker.tools.commands.command_group import Command, excluding
from pykbroker.tools.commands.completion import group_names, topic_names
from pykbroker.tools.commands.named_topics import named_topics, pattern_of
from pykbroker.tools.commands.python_client import ENCODING, settings_for
from pykbroker.tools.commands.time_options import now_ms

if TYPE_CHECKING:
    from pykbroker.tools.cluster.failure import AskFailed
    from pykbroker.tools.cluster.share_group_reader import ShareGroupReader
    from pykbroker.tools.cluster.topic_reader import TopicReader

#: A new leader is usually elected within this time.
_LEADER_SECONDS: Final = 3.0
#: Options that have no meaning for a member of a share group: parameter -> option and reason.
_NOT_WITH_SHARE: Final = {
    "group": ("--group", "a share group is no consumer group"),
    "partitions": ("--partition", "the group assigns partitions"),
    "last": ("--to", "the group has no position in a partition"),
    "grep": ("--grep", "records that are not printed would be acknowledged"),
    "isolation": ("--isolation", "share.isolation.level is a configuration of the group"),
}
_WHERE: Final = "beginning|end|stored|OFFSET|-N|TIME"


def _bound(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Bound | None:
    try:
        return None if value is None else parsed_bound(value, now_ms())
    except ValueError as error:
        raise click.BadParameter(f"{error}.", ctx, parameter) from None


@click.command(
    "consume",
    cls=Command,
    example=r"pykbroker consume orders -f '%T %p:%o %k %h %s\n' --from -10"
    "\npykbroker consume orders --from 2026-01-31T12:00 --to 2026-01-31T13:00 -J | jq .payload"
    "\npykbroker consume 'orders-.*' --from -15m --grep '\"status\": ?5..'"
    "\npykbroker consume orders payments --group audit --follow"
    "\npykbroker consume jobs --share workers --count 10 -f '%s, delivered %d times\\n'",
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=topic_names)
@client_options
@click.option(
    "-f",
    "--format",
    "text",
    metavar="FORMAT",
    help="How a record is printed, as kcat has it: %s the value, %k the key, %h the headers, %t the topic, "
    "%p the partition, %o the offset, %T the timestamp in ms, %S and %K the sizes of value and key, %R the size of "
    "the value as four bytes; \\n \\r \\t \\xNN. With --share, %d is how often the record was delivered.",
)
@click.option("-J", "--json", "is_json", is_flag=True, help="Print a JSON object a line, as kcat -J does.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="json: the same as -J (default: text)."
)
@click.option("-D", "--delimiter", default="\\n", metavar="TEXT", help="Print this after each value (default: \\n).")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Print the key and this before each value.")
@click.option("-Z", "--show-null", is_flag=True, help="Print a null key or value as NULL.")
@click.option("--key-as", type=ENCODING, default="text", help="Print keys as they are (default), or encoded.")
@click.option("--value-as", type=ENCODING, default="text", help="Print values as they are (default), or encoded.")
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    help="Only this partition (may be repeated).",
)
@click.option(
    "--from",
    "first",
    metavar=_WHERE,
    callback=_bound,
    help="Where to begin (default: beginning): an offset, -N records before the end, a time "
    f"({TIMES}), stored: where the group of -X group.id stopped. With --group: beginning "
    "or end, for partitions in which the group has no offset. With --share: beginning or end, which is stored as "
    "share.auto.offset.reset of the group, and acts on partitions that the group has not read yet.",
)
@click.option(
    "--to",
    "last",
    metavar=_WHERE,
    callback=_bound,
    help="Where to end: the record there is not printed (default: what is the end when the command begins).",
)
@click.option("-c", "--count", type=click.IntRange(0), metavar="N", help="End after this many records.")
@click.option(
    "--grep",
    metavar="REGEX",
    help="Only records whose value or key has a match of this regular expression of RE2; (?i) ignores case.",
)
@click.option("--follow", is_flag=True, help="Go on at the end, and wait for new records.")
@click.option(
    "-g",
    "--group",
    cls=PropertyOption,
    key="group.id",
    metavar="ID",
    shell_complete=group_names,
    help="Read as a member of this group, and commit what was printed.",
)
@click.option(
    "--share",
    "share_group",
    cls=PropertyOption,
    key="group.id",
    metavar="ID",
    shell_complete=group_names,
    help="Read as a member of this share group (KIP-932), and acknowledge what was printed.",
)
@click.option("--release", "releases", is_flag=True, help="With --share: give printed records back, for a test.")
@click.option("--reject", "rejects", is_flag=True, help="With --share: reject printed records, for a test.")
@click.option(
    "--isolation",
    cls=PropertyOption,
    key="isolation.level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    help="read_committed leaves out what open and aborted transactions wrote (default: read_uncommitted).",
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, /, client: ClientOptions, **words: Any) -> int:
    """Print the records of topics.

    A read ends at what was the end of the topics when it began; with --follow it ends with Ctrl-C. A read of a share
    group ends when nothing came for three seconds. A TOPIC may be a regular expression of RE2 that matches whole names,
    for example 'orders-.*'. It stands for the topics that there are when the command begins.

    Keys and values are printed byte by byte. -J prints what `pykbroker produce -J` reads: keys, values and headers that
    are no text stand there in base64.
    """
    from pykbroker.tools.cluster.topic_reader import TopicReader, WantedRecords

    excluding(ctx, "text", "is_json")
    if words["share_group"] is not None:
        return _consume_share(ctx, client, words)
    for option in ("releases", "rejects"):
        if words[option]:
            raise click.UsageError(f"--{option.removesuffix('s')} needs --share.", ctx)
    _check(ctx, words)
    pattern = None if words["grep"] is None else pattern_of(words["grep"])
    written = _format(ctx, words)
    settings = _settings(ctx, client, words)
    # A group deals out what has no leader yet, and --follow waits for it.
    needs_leaders = not (words["group"] and words["follow"])
    reading = WantedRecords(
        topics=_topics(client, words["topics"], words["partitions"], needs_leaders=needs_leaders),
        partitions=words["partitions"],
        first=words["first"] or BEGINNING,
        last=words["last"] or END,
        count=words["count"],
        follows=words["follow"],
        wants=None if pattern is None else pattern.is_in_record,
        group=words["group"],
    )
    reader = TopicReader(reading, settings)
    return _print_all(reader, written)


def _consume_share(ctx: click.Context, client: ClientOptions, words: dict[str, Any]) -> int:
    """Print the records that a share group gives to this member."""
    from pykbroker.tools.cluster import configs, share_member_session
    from pykbroker.tools.cluster.share_group_reader import ShareGroupReader, WantedShare

    _check_share(ctx, words)
    written = _format(ctx, words)
    group: str = words["share_group"]
    names = _topics(client, words["topics"], (), needs_leaders=not words["follow"])
    kind = (
        share_member_session.RELEASE
        if words["releases"]
        else share_member_session.REJECT
        if words["rejects"]
        else share_member_session.ACCEPT
    )
    wanted = WantedShare(group, names, kind, count=words["count"], follows=words["follow"])
    with client.cluster() as cluster:
        if words["first"] is not None:
            reset = "earliest" if words["first"] == BEGINNING else "latest"
            changes = configs.changes_of({"share.auto.offset.reset": reset})
            configs.alter(cluster, (configs.ResourceKind.GROUP, group), changes)
        return _print_all(ShareGroupReader(cluster, wanted, _say_refused), written)


def _say_refused(place: tuple[str, int], _: Sequence[int], error: AskFailed | None) -> None:
    if error is None:
        return
    failures.say(f"WARN {place[0]}-{place[1]}: an acknowledgement was refused, and its records come again: {error}")


def _check_share(ctx: click.Context, words: dict[str, Any]) -> None:
    excluding(ctx, "releases", "rejects")
    for parameter, (option, reason) in _NOT_WITH_SHARE.items():
        if words[parameter] not in (None, ()):
            raise click.UsageError(f"{option} does not go with --share: {reason}.", ctx)
    if words["first"] not in (None, BEGINNING, END):
        raise click.UsageError(
            "--from is beginning or end with --share; `pykbroker groups reset` sets where a share group starts.", ctx
        )


def _topics(
    client: ClientOptions, words: tuple[str, ...], partitions: tuple[int, ...], *, needs_leaders: bool
) -> list[str]:
    """Return the topics of the words. Raises AskFailed for a topic that this client may not see, ClickException for one
    that does not exist, and AskFailed if no node can be reached, which kafka-python itself does not report.

    `needs_leaders`: each partition that is read needs a leader, for which kafka-python would wait. Raises
    ClickException for a partition without one.
    """
    from pykbroker.tools.cluster import topics
    from pykbroker.tools.cluster.client_failure import denied_topics
    from pykbroker.tools.cluster.failure import AskFailed
    from pykbroker_wire.errors import ErrorCode

    with client.cluster() as cluster:
        listed = topics.listed(cluster)
        names = {one.name for one in listed}
        hidden = [word for word in words if word not in names and not is_pattern(word)]
        try:
            # A list of all topics leaves out those that the client may not see.
            topics.leaders(cluster, hidden)
        except AskFailed as error:
            raise denied_topics(hidden) if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else error from None
        found = named_topics(words, listed)
        if needs_leaders:
            numbers = {one.name: partitions or one.partitions for one in listed}
            places = [(name, number) for name in found for number in numbers[name]]
            _check_leaders(topics.leaderless(cluster, places, _LEADER_SECONDS))
    return found


def _check_leaders(leaderless: list[tuple[str, int]]) -> None:
    """Raise ClickException if a partition has no leader."""
    if leaderless:
        topic, number = leaderless[0]
        raise click.ClickException(f"{topic}-{number} has no leader: see `pykbroker topics describe {topic}`")


def _check(ctx: click.Context, words: dict[str, Any]) -> None:
    first: Bound | None = words["first"]
    if words["group"] is None:
        if words["last"] == STORED:
            raise click.UsageError("--to stored is no end.", ctx)
        return
    if words["partitions"]:
        raise click.UsageError("--partition does not go with --group: the group deals partitions out.", ctx)
    if words["last"] is not None:
        raise click.UsageError("--to does not go with --group.", ctx)
    if first is not None and first.kind not in (BoundKind.BEGINNING, BoundKind.END, BoundKind.STORED):
        raise click.UsageError(
            "--from is beginning or end with --group, which goes on where it stopped; `pykbroker groups reset` "
            "changes that.",
            ctx,
        )


def _format(ctx: click.Context, words: dict[str, Any]) -> Callable[[Any], bytes]:
    shown = Shown(words["key_as"], words["value_as"], b"NULL" if words["show_null"] else b"")
    if words["is_json"] or words["output"] == "json":
        return JsonFormat(shown).written
    try:
        if words["text"] is not None:
            return FormatString(words["text"], shown).written
        between = words["key_delimiter"]
        return DelimitedFormat(
            unescaped(words["delimiter"]), None if between is None else unescaped(between), shown
        ).written
    except ValueError as error:
        raise click.UsageError(f"{error}.", ctx) from None


def _settings(ctx: click.Context, client: ClientOptions, words: dict[str, Any]) -> dict[str, Any]:
    from kafka import KafkaConsumer

    settings = settings_for(client, KafkaConsumer.DEFAULT_CONFIG)
    if words["isolation"] is not None:
        settings["isolation_level"] = words["isolation"]
    if words["first"] == STORED and words["group"] is None and not settings.get("group_id"):
        raise click.UsageError("--from stored needs the name of a group: -X group.id=ID, or --group ID.", ctx)
    return settings


def _print_all(reader: TopicReader | ShareGroupReader, written: Callable[[Any], bytes]) -> int:
    """Print until the read ends, a signal comes, or the reader of the output closes it. Returns the exit status."""
    caught: list[int] = []

    def end(number: int, _: object) -> None:
        # A second signal ends the process at once.
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        caught.append(number)
        reader.stop()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    out = sys.stdout.buffer
    printed_all = False
    waits = True
    try:
        for batch in reader.batches():
            for record in batch:
                out.write(written(record))
            out.flush()
        printed_all = True
    except LostOutput as error:
        if not error.is_unwanted:
            raise
        # The reader of the output wants no more of it.
        drop_output()
    except KeyboardInterrupt:
        # The user does not want to wait for brokers, which notice that the connections end.
        waits = False
        raise
    finally:
        try:
            if waits:
                reader.close(printed_all=printed_all)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return 128 + caught[0] if caught else 0
