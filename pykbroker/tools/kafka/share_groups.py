"""kafka-share-groups: list, describe and delete share groups, and reset or delete their start offsets.

The output and the statuses are those of Apache Kafka 4.3.1, as --version says, where the tool of 4.4 differs. The
options --to-offset, --to-current, --from-file and --export are those of 4.4 (KIP-1323), and print what they print
there. compat_tests/our_tools compares both releases, and names the differences.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.reset_plan import BadReset, scope
from pykbroker.tools.kafka import group_tables, share_group_tables
from pykbroker.tools.kafka.reach import BAD_START, BOOTSTRAP, COMMAND_CONFIG, opened, said_of
from pykbroker.tools.kafka.reset_lines import ResetLines, rows_of_path, target_value
from pykbroker.tools.kafka.tool_options import Accepted, Given, OptionError, Options, ToolEnded

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
    from pykbroker.tools.cluster.groups import GroupDescription
    from pykbroker.tools.cluster.share_groups import SharePosition

_ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_STATES: Final = ("Stable", "Dead", "Empty")
_TARGETS: Final = ("to-offset", "to-datetime", "to-earliest", "to-latest", "to-current", "from-file")
_SCOPES: Final = ("topic", "all-topics", "from-file")
#: The actions that each of these options belongs to.
_ONLY_WITH: Final = {
    "members": ("describe",),
    "offsets": ("describe",),
    "state": ("describe", "list"),
    "verbose": ("describe",),
}

OPTIONS = Options(
    "This tool helps to list, describe, reset and delete share groups.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("all-groups", "Every share group."),
        Accepted("all-topics", "Every topic that the group has start offsets of."),
        Accepted("delete", "Delete groups."),
        Accepted("delete-offsets", "Delete the start offsets of topics."),
        Accepted("describe", "Describe groups."),
        Accepted("dry-run", "Show what a reset would do."),
        Accepted("execute", "Reset the start offsets."),
        Accepted("export", "Print the start offsets of a reset as CSV."),
        Accepted("from-file", "Reset to the offsets of a CSV file.", "file"),
        Accepted("group", "A share group; may be repeated.", "group"),
        Accepted("list", "List share groups."),
        Accepted("members", "Describe the members."),
        Accepted("offsets", "Describe the start offsets; this is the default of --describe."),
        Accepted("reset-offsets", "Reset the start offsets of a group without members."),
        Accepted("state", "List or describe states; with --list only these.", "states", is_optional=True),
        Accepted("timeout", "How long a group is asked for.", "ms", int, "30000"),
        Accepted("to-current", "Reset to the start offsets that the group has."),
        Accepted("to-datetime", "Reset to the offset at a time: YYYY-MM-DDThh:mm:ss.sss.", "time"),
        Accepted("to-earliest", "Reset to the first offset."),
        Accepted("to-latest", "Reset to the end."),
        Accepted("to-offset", "Reset to this offset.", "offset", int),
        Accepted("topic", "A topic, or topic:0,1 for partitions of a reset; may be repeated.", "topic"),
        Accepted("verbose", "Describe more."),
    ],
)


def run(words: Sequence[str]) -> int:
    try:
        given = OPTIONS.parse(words)
    except OptionError as error:
        print(error, file=sys.stderr)
        return 1
    OPTIONS.help_or_version(words, given)
    for option, actions in _ONLY_WITH.items():
        if given.has(option) and not any(map(given.has, actions)):
            print(f"Option(s) [{option}] are unavailable given other options on the command line", file=sys.stderr)
            return 1
    _check(given)
    try:
        cluster = opened(given, extra={"default.api.timeout.ms": str(given.integer("timeout"))})
    except OptionError as error:
        # Apache Kafka's tool reads the arguments of its options when it uses them.
        _print_failure(str(error))
        return 0
    except BAD_START as error:
        print(said_of(error), file=sys.stderr)
        return 1
    with cluster:
        try:
            if given.has("list"):
                _list(cluster, given)
            elif given.has("describe"):
                _describe(cluster, given)
            elif given.has("delete"):
                _delete(cluster, given)
            elif given.has("reset-offsets"):
                _reset(cluster, given)
            else:
                _delete_offsets(cluster, given)
        except _InAFuture as error:
            _print_failure(f"{error.name}: {error}")
        except (AskFailed, OptionError) as error:
            _print_failure(str(error))
        except BadReset as error:
            _print_failure(f"{error.name}: {error}" if error.name else str(error))
    # Apache Kafka's tool also ends with 0 here.
    return 0


class _InAFuture(AskFailed):
    """A failure that Apache Kafka's tool prints with the class of its exception, because it takes it from a future."""


def _in_a_future(error: AskFailed) -> _InAFuture:
    return _InAFuture(str(error), error.name, error.code)


def _print_error(message: str) -> None:
    print(f"\nError: {message}")


def _print_failure(reason: str) -> None:
    _print_error(f"Executing share group command failed due to {reason}")


def _check(given: Given) -> None:
    OPTIONS.require(given, "bootstrap-server")
    if given.has("describe"):
        _check_describe(given)
    if given.has("delete"):
        if not given.has("group") and not given.has("all-groups"):
            OPTIONS.end_with_usage("Option [delete] takes the options [group] or [all-groups]")
        if given.has("group") and given.has("all-groups"):
            OPTIONS.end_with_usage("Option [delete] takes either [group] or [all-groups], not both.")
        if given.has("topic"):
            OPTIONS.end_with_usage("Option [delete] does not take the option: [topic]")
    if given.has("delete-offsets") and not (given.has("group") and given.has("topic")):
        OPTIONS.end_with_usage("Option [delete-offsets] takes the following options: [group], [topic]")
    if given.has("reset-offsets"):
        _check_reset(given)
    OPTIONS.exclude(given, "group", "all-groups", "list")
    OPTIONS.exclude(given, "topic", "list", "describe")
    if sum(map(given.has, _ACTIONS)) != 1:
        named = ", ".join(f"--{action}" for action in _ACTIONS)
        OPTIONS.end_with_usage(f"Command must include exactly one action: {named}.")


def _check_describe(given: Given) -> None:
    if not given.has("group") and not given.has("all-groups"):
        OPTIONS.end_with_usage("Option [describe] takes one of these options: [all-groups], [group]")
    if sum(map(given.has, ("members", "offsets", "state"))) > 1:
        OPTIONS.end_with_usage("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if given.has("state") and given.text("state") is not None:
        OPTIONS.end_with_usage("Option [describe] does not take a value for [state]")


def _check_reset(given: Given) -> None:
    if given.has("dry-run") and given.has("execute"):
        OPTIONS.end_with_usage("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not given.has("dry-run") and not given.has("execute"):
        OPTIONS.end_with_usage("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if not given.has("group"):
        OPTIONS.end_with_usage("Option [reset-offsets] takes the option: [group]")
    for known in (_SCOPES, _TARGETS):
        if not any(map(given.has, known)):
            named = ", ".join(sorted(f"[{option}]" for option in known))
            OPTIONS.end_with_usage(f"Option [reset-offsets] takes one of these options: {named}")
        for option in known:
            OPTIONS.exclude(given, option, *(other for other in known if other != option))


# -- list and describe ------------------------------------------------------------------------------------------------


def _list(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import share_groups

    if given.has("state"):
        print(share_group_tables.states(share_groups.listed(cluster, states=_states(given))), end="")
    else:
        print("".join(f"{group.id}\n" for group in share_groups.listed(cluster)), end="")


def _states(given: Given) -> list[str]:
    """Return the states that --state lists, as Apache Kafka spells them."""
    written = given.text("state")
    if not written:
        return []
    known = {name.lower(): name for name in _STATES}
    words = [word.strip().lower() for word in written.split(",")]
    if not all(word in known for word in words):
        OPTIONS.end_with_usage(f"Invalid state list '{written}'. Valid states are: {', '.join(_STATES)}")
    return [known[word] for word in words]


def _describe(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import share_groups

    verbose = given.has("verbose")
    wanted = [one.id for one in share_groups.listed(cluster)] if given.has("all-groups") else given.texts("group")
    groups: list[GroupDescription] = []
    for found in share_groups.described(cluster, sorted(wanted)).values():
        if isinstance(found, AskFailed):
            raise _in_a_future(found)
        groups.append(found)
    if given.has("members"):
        for group in groups:
            if _has_rows(group, len(group.members)):
                print(share_group_tables.members(group, verbose=verbose), end="")
    elif given.has("state"):
        for group in groups:
            _has_rows(group, 1)
            coordinator = group_tables.coordinator_of(cluster.nodes(), group.coordinator)
            print(share_group_tables.state(group, coordinator, verbose=verbose), end="")
    else:
        for group, positions in [(group, _positions(cluster, group.id)) for group in groups]:
            if positions:
                print(share_group_tables.offsets(group.id, positions, verbose=verbose), end="")
            else:
                print(f"\nShare group '{group.id}' has no offset information.")


def _positions(
    cluster: AskedCluster, group: str, places: Collection[PartitionName] | None = None
) -> dict[PartitionName, SharePosition]:
    """Return where a group is, in these partitions or in all. As in Apache Kafka, a partition with an error is left
    out, with a line on standard error."""
    from pykbroker.tools.cluster import share_groups

    found = {}
    for (topic, number), at in share_groups.positions(cluster, group, places).items():
        if isinstance(at, AskFailed):
            code = 0 if at.code is None else int(at.code)
            print(f"WARN Skipping return offset for {topic}-{number} due to error {code}: {at}.", file=sys.stderr)
        else:
            found[topic, number] = at
    return found


def _has_rows(group: GroupDescription, rows: int) -> bool:
    """Print that a group is dead or empty, and return True if there are rows to print."""
    if group.state == "Dead":
        _print_error(f"Share group '{group.id}' does not exist.")
        return False
    if group.state == "Empty":
        print(f"\nShare group '{group.id}' has no active members.", file=sys.stderr)
    return rows > 0


# -- delete -----------------------------------------------------------------------------------------------------------


def _delete(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import groups, share_groups

    states = {group.id: group.state for group in share_groups.listed(cluster)}
    wanted = list(states) if given.has("all-groups") else list(dict.fromkeys(given.texts("group")))
    failures = {group: refused for group in wanted if (refused := _refused(group, states.get(group))) is not None}
    outcomes = groups.delete(cluster, [group for group in wanted if group not in failures])
    failures |= {group: f"{error.name}: {error}" for group, error in outcomes.items() if error is not None}
    gone = ", ".join(f"'{group}'" for group, error in outcomes.items() if error is None)
    if not failures:
        print(f"Deletion of requested share groups ({gone}) was successful.")
        return
    _print_error("Deletion of some share groups failed:")
    for group, reason in failures.items():
        print(f"* Group '{group}' could not be deleted due to: {reason}")
    if gone:
        print(f"\nThese share groups were deleted successfully: {gone}")


def _refused(group: str, state: str | None) -> str | None:
    """Return the reason why a group in this state is not deleted, or None. `state`: None if it is no share group."""
    if state is None:
        return f"java.lang.IllegalArgumentException: Group '{group}' is not a share group."
    if state == "Dead":
        return f"java.lang.IllegalStateException: Share group '{group}' group state is DEAD."
    if state != "Empty":
        return f"org.apache.kafka.common.errors.GroupNotEmptyException: Share group '{group}' is not EMPTY."
    return None


def _delete_offsets(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import share_groups
    from pykbroker_wire.errors import ErrorCode

    whole, topics = share_groups.delete_offsets(cluster, given.text("group") or "", given.texts("topic"))
    if whole is not None:
        known = (
            ErrorCode.INVALID_GROUP_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.NON_EMPTY_GROUP,
        )
        _print_error(str(whole) if whole.code in known else f"Encounter some unknown error: {whole.name}: {whole}")
    outcomes = {name: "Successful" if error is None else f"Error: {error}" for name, error in topics.items()}
    print(share_group_tables.deleted(outcomes), end="")


# -- reset ------------------------------------------------------------------------------------------------------------


def _reset(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import share_groups

    group = given.text("group") or ""
    try:
        if share_groups.active_state(cluster, group) is not None:
            print(f"Share group '{group}' is not empty.", file=sys.stderr)
            raise ToolEnded(1)
    except AskFailed as error:
        print(error, file=sys.stderr)
        raise ToolEnded(1) from None
    planned = _plan(cluster, given, group)
    if given.has("execute"):
        share_groups.alter_starts(cluster, group, planned)
    rows = [(group, *place, at) for place, at in sorted(planned.items())]
    if given.has("export"):
        print("".join(f"{topic},{number},{at}\n" for _, topic, number, at in rows))
    else:
        # The option is one of 4.4, which prints no heads without a row.
        print(group_tables.reset([group], rows) if rows or not given.has("from-file") else "\n", end="")


def _plan(cluster: AskedCluster, given: Given, group: str) -> dict[PartitionName, int]:
    """Return the new start offset of each partition of the reset. Raises AskFailed, BadReset."""
    from pykbroker.tools.cluster import reset_targets, topics
    from pykbroker.tools.cluster.groups import KnownOffset

    target = next(filter(given.has, _TARGETS))
    lines = ResetLines()
    if target == "from-file":
        planned = rows_of_path(given.text("from-file") or "", [group]).get(group)
        if planned is None:
            _print_error(f"No reset plan for group {group} found.")
            return {}
        return reset_targets.within_ends(cluster, planned, lines.bound)
    places: list[PartitionName] | None = None
    if given.has("topic"):
        try:
            places = scope(given.texts("topic"), {topic.name: topic.partitions for topic in topics.listed(cluster)})
        except BadReset as error:
            if not error.name:
                raise
            OPTIONS.end_with_usage(str(error))
    known: dict[PartitionName, KnownOffset] = {}
    if places is None or target == "to-current":
        positions = _positions(cluster, group, places)
        known = {place: KnownOffset(at.start) for place, at in positions.items() if at.start is not None}
        places = sorted(positions) if places is None else places
    return reset_targets.planned(cluster, target, target_value(given, target), places, known, lines)
