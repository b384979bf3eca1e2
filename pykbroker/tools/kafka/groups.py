"""kafka-groups: list the groups of all types."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.kafka.group_tables import table_of_groups
from pykbroker.tools.kafka.reach import BAD_START, BOOTSTRAP, COMMAND_CONFIG, opened, said_of
from pykbroker.tools.kafka.tool_options import Accepted, Given, OptionError, Options

if TYPE_CHECKING:
    from pykbroker.tools.cluster.groups import GroupListing

_TYPES: Final = ("classic", "consumer", "share", "streams")

OPTIONS = Options(
    "This tool helps to list groups of all types.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("consumer", "Only groups of consumers, of both protocols."),
        Accepted("group-type", f"Only groups of this type: {', '.join(_TYPES)}.", "type"),
        Accepted("list", "List the groups."),
        Accepted("protocol", "Only groups of this protocol.", "protocol"),
        Accepted("share", "Only share groups."),
        Accepted("streams", "Only streams groups."),
    ],
)


def run(words: Sequence[str]) -> int:
    try:
        given = OPTIONS.parse(words)
        OPTIONS.help_or_version(words, given)
        _check(given)
        cluster = opened(given)
    except OptionError as error:
        OPTIONS.end_with_usage(str(error))
    except BAD_START as error:
        print(said_of(error), file=sys.stderr)
        return 1
    from pykbroker.tools.cluster import groups

    with cluster:
        try:
            found = [one for one in groups.of_all_types(cluster) if _is_wanted(one, given)]
        except AskFailed as error:
            print(f"Error while executing groups command : {error}", file=sys.stderr)
            return 1
    print(table_of_groups([(one.id, one.type, one.protocol) for one in found]), end="")
    return 0


def _check(given: Given) -> None:
    if not given.has("list"):
        OPTIONS.end_with_usage("Command must include exactly one action: --list.")
    OPTIONS.require(given, "bootstrap-server")
    for option, others in (
        ("consumer", ("group-type", "protocol", "share", "streams")),
        ("share", ("consumer", "group-type", "protocol", "streams")),
        ("streams", ("consumer", "group-type", "protocol", "share")),
    ):
        OPTIONS.exclude(given, option, *others)
    wanted = given.text("group-type")
    if wanted is not None and wanted.lower() not in _TYPES:
        OPTIONS.end_with_usage("--group-type must be a valid group type.")


def _is_wanted(group: GroupListing, given: Given) -> bool:
    kind, protocol = group.type.lower(), group.protocol
    if given.has("consumer"):
        return kind == "consumer" or (kind == "classic" and protocol in ("", "consumer"))
    wanted = "share" if given.has("share") else "streams" if given.has("streams") else given.text("group-type")
    of_protocol = given.text("protocol")
    return (wanted is None or kind == wanted.lower()) and (of_protocol is None or protocol == of_protocol)
