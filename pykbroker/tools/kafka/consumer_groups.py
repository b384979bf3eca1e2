"""kafka-consumer-groups: list, describe and delete groups, and reset or delete their offsets."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.reset_plan import UNKNOWN_TOPIC, BadReset, scope, written_partitions
from pykbroker.tools.kafka import group_tables
from pykbroker.tools.kafka.reach import BAD_START, BOOTSTRAP, COMMAND_CONFIG, opened, said_of
from pykbroker.tools.kafka.reset_lines import ResetLines, rows_of_path, target_value
from pykbroker.tools.kafka.tool_options import Accepted, Given, OptionError, Options

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
    from pykbroker.tools.cluster.groups import GroupDescription, KnownOffset

_ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
_TYPES: Final = ("Consumer", "Classic")
_TARGETS: Final = (
    "to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "shift-by", "from-file", "to-current",
)  # fmt: skip
_UNKNOWN_TOPIC: Final = f"org.apache.kafka.common.errors.UnknownTopicOrPartitionException: {UNKNOWN_TOPIC}"
_NO_EXECUTE: Final = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require "
    "either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are "
    "scripting this command and want to keep the current default behavior without prompting."
)

OPTIONS = Options(
    "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset "
    "consumer group offsets.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("all-groups", "Every consumer group."),
        Accepted("all-topics", "Every topic that the group has offsets of."),
        Accepted("by-duration", "Reset to the offset that long ago: PnDTnHnMnS.", "duration"),
        Accepted("delete", "Delete groups."),
        Accepted("delete-offsets", "Delete the offsets of topics."),
        Accepted("describe", "Describe groups."),
        Accepted("dry-run", "Show what a reset would do."),
        Accepted("execute", "Reset the offsets."),
        Accepted("export", "Print the offsets as CSV."),
        Accepted("from-file", "Reset to the offsets of a CSV file.", "file"),
        Accepted("group", "A group; may be repeated.", "group"),
        Accepted("list", "List groups."),
        Accepted("members", "Describe the members."),
        Accepted("offsets", "Describe the offsets; this is the default of --describe."),
        Accepted("reset-offsets", "Reset the offsets of groups without members."),
        Accepted("shift-by", "Reset by that many, forwards or backwards.", "count", int),
        Accepted("state", "List or describe states; with --list only these.", "states", is_optional=True),
        Accepted("timeout", "How long a group is asked for.", "ms", int, "30000"),
        Accepted("to-current", "Reset to what is committed."),
        Accepted("to-datetime", "Reset to the offset at a time: YYYY-MM-DDThh:mm:ss.sss.", "time"),
        Accepted("to-earliest", "Reset to the first offset."),
        Accepted("to-latest", "Reset to the end."),
        Accepted("to-offset", "Reset to this offset.", "offset", int),
        Accepted("topic", "A topic, or topic:0,1 for partitions; may be repeated.", "topic"),
        Accepted("type", "List types; only these.", "types", is_optional=True),
        Accepted("validate-regex", "Say whether a regular expression is one of RE2.", "regex"),
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
    _check(given)
    if given.has("validate-regex"):
        _validate(given.text("validate-regex") or "")
        return 0
    try:
        timeout_ms = given.number("timeout")
        extra = {"default.api.timeout.ms": str(timeout_ms)} if timeout_ms is not None else {}
        cluster = opened(given, extra=extra)
    except OptionError as error:
        _print_error(f"Executing consumer group command failed due to {error}")
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
        except (AskFailed, BadReset) as error:
            if isinstance(error, BadReset) and error.is_of_the_command_line:
                OPTIONS.end_with_usage(str(error))
            named = f"{error.name}: {error}" if error.name else str(error)
            _print_error(f"Executing consumer group command failed due to {named}")
    # Apache Kafka's tool also ends with 0 here.
    return 0


def _print_error(message: str) -> None:
    print(f"\nError: {message}")


def _check(given: Given) -> None:
    if sum(map(given.has, _ACTIONS)) != 1:
        OPTIONS.end_with_usage(f"Command must include exactly one action: {', '.join(f'--{one}' for one in _ACTIONS)}")
    if not given.has("validate-regex"):
        OPTIONS.require(given, "bootstrap-server")
    if given.has("describe"):
        if not given.has("group") and not given.has("all-groups"):
            OPTIONS.end_with_usage("Option [describe] takes one of these options: [group], [all-groups]")
        if sum(map(given.has, ("members", "offsets", "state"))) > 1:
            OPTIONS.end_with_usage(
                "Option [describe] takes at most one of these options: [members], [offsets], [state]"
            )
        if given.has("state") and given.text("state") is not None:
            OPTIONS.end_with_usage("Option [describe] does not take a value for [state]")
    if given.has("delete"):
        if not given.has("group") and not given.has("all-groups"):
            OPTIONS.end_with_usage("Option [delete] takes one of these options: [group], [all-groups]")
        if given.has("topic"):
            OPTIONS.end_with_usage(
                "The consumer does not support topic-specific offset deletion from a consumer group."
            )
    if given.has("delete-offsets") and not (given.has("group") and given.has("topic")):
        OPTIONS.end_with_usage("Option [delete-offsets] takes the following options: [group], [topic]")
    if given.has("reset-offsets"):
        _check_reset(given)
    if not given.has("reset-offsets"):
        for option in ("dry-run", "execute", "export", "all-topics", *_TARGETS):
            OPTIONS.exclude(given, option, *(action for action in _ACTIONS if action != "reset-offsets"))
    OPTIONS.exclude(given, "group", "all-groups", "list")
    OPTIONS.exclude(given, "topic", "list", "describe", "delete")


def _check_reset(given: Given) -> None:
    if given.has("dry-run") and given.has("execute"):
        OPTIONS.end_with_usage("Option [reset-offsets] only accepts one of [dry-run], [execute]")
    if not given.has("dry-run") and not given.has("execute"):
        print(_NO_EXECUTE, file=sys.stderr)
    if not given.has("group") and not given.has("all-groups"):
        OPTIONS.end_with_usage("Option [reset-offsets] takes one of these options: [group], [all-groups]")
    if sum(map(given.has, _TARGETS)) != 1:
        OPTIONS.end_with_usage(
            f"Option [reset-offsets] takes exactly one of these options: {', '.join(f'[{one}]' for one in _TARGETS)}"
        )


def _validate(regex: str) -> None:
    import re2

    quiet = re2.Options()
    quiet.log_errors = False
    try:
        re2.compile(regex, quiet)
    except re2.error as error:
        said = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        # RE2/J, which Apache Kafka's tool uses, has another text for this error.
        reason = said.partition(":")[0].replace("missing )", "missing closing )")
        print(f"The regular expression `{regex}` is invalid: {reason}.")
    else:
        print(f"The regular expression `{regex}` is valid.")


# -- list and describe ------------------------------------------------------------------------------------------------


def _named(given: Given, option: str, known: Sequence[str], what: str) -> list[str]:
    """Return the states or types that the option lists, as Apache Kafka spells them."""
    found = []
    for text in (given.text(option) or "").split(","):
        if text.strip():
            spelled = {name.lower(): name for name in known}.get(text.strip().lower())
            if spelled is None:
                OPTIONS.end_with_usage(
                    f"Invalid {what} list '{given.text(option)}'. Valid {what.removesuffix('s')}s are: "
                    f"{', '.join(known)}"
                )
            found.append(spelled)
    return found


def _list(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import groups

    states = _named(given, "state", _STATES, "state")
    types = _named(given, "type", _TYPES, "types")
    found = groups.listed(cluster, states=states, types=types)
    print(group_tables.listing(found, with_type=given.has("type"), with_state=given.has("state")), end="")


def _wanted(cluster: AskedCluster, given: Given) -> list[str]:
    from pykbroker.tools.cluster import groups

    return [one.id for one in groups.listed(cluster)] if given.has("all-groups") else given.texts("group")


def _describe(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import groups

    verbose = given.has("verbose")
    found = groups.described(cluster, sorted(_wanted(cluster, given)))
    for group in found.values():
        if isinstance(group, AskFailed):
            raise group
    for group in found.values():
        assert not isinstance(group, AskFailed)
        _say_state(group)
        if given.has("members"):
            print(group_tables.members(group, verbose=verbose), end="")
        elif given.has("state"):
            coordinator = group_tables.coordinator_of(cluster.nodes(), group.coordinator)
            print(group_tables.state(group, coordinator, verbose=verbose), end="")
        else:
            rows = _offset_rows(cluster, group)
            if rows:
                print(group_tables.offsets(rows, verbose=verbose), end="")


def _say_state(group: GroupDescription) -> None:
    if group.state == "Empty":
        print(f"\nConsumer group '{group.id}' has no active members.", file=sys.stderr)
    elif group.state not in ("Stable", "Dead"):
        print(f"\nWarning: Consumer group '{group.id}' is rebalancing.", file=sys.stderr)


def _offset_rows(cluster: AskedCluster, group: GroupDescription) -> list[group_tables.OffsetRow]:
    from pykbroker.tools.cluster.group_lag import positions

    return [
        group_tables.OffsetRow(
            group=group.id,
            topic=one.topic,
            partition=one.partition,
            offset=one.committed.offset if one.committed is not None else None,
            end=one.end,
            leader_epoch=one.committed.leader_epoch if one.committed is not None else None,
            consumer=one.owner.id if one.owner is not None else group_tables.MISSING,
            host=one.owner.host if one.owner is not None else group_tables.MISSING,
            client=one.owner.client_id if one.owner is not None else group_tables.MISSING,
        )
        for one in positions(cluster, group)
    ]


# -- delete -----------------------------------------------------------------------------------------------------------


def _delete(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import groups

    outcome = groups.delete(cluster, _wanted(cluster, given))
    gone = "', '".join(group for group, error in outcome.items() if error is None)
    failures = {group: error for group, error in outcome.items() if error is not None}
    if not failures:
        print(f"Deletion of requested consumer groups ('{gone}') was successful.")
        return
    _print_error("Deletion of some consumer groups failed:")
    for group, error in failures.items():
        print(f"* Group '{group}' could not be deleted due to: {error.name}: {error}")
    if gone:
        print(f"\nThese consumer groups were deleted successfully: '{gone}'")


def _delete_offsets(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import groups

    group = given.text("group") or ""
    existing = _existing(cluster)
    places: list[PartitionName] = []
    missing: list[str] = []
    for text in given.texts("topic"):
        topic, numbers = written_partitions(text)
        if numbers is None and topic not in existing:
            missing.append(topic)
        else:
            # The coordinator judges the partitions that are named.
            places += [(topic, number) for number in (existing[topic] if numbers is None else numbers)]
    whole, outcome = groups.delete_offsets(cluster, group, places)
    if whole is not None:
        _print_error(str(whole))
    elif any(outcome.values()):
        _print_error("Encountered some partition-level error, see the follow-up details.")
    else:
        print(f"Request succeeded for deleting offsets from group {group}.")
    rows = [
        (topic, str(number), "Successful" if error is None else f"Error: {error.name}: {error}")
        for (topic, number), error in sorted(outcome.items())
    ]
    rows += [(topic, group_tables.MISSING, f"Error: {_UNKNOWN_TOPIC}") for topic in missing]
    print(group_tables.deleted(rows), end="")


def _existing(cluster: AskedCluster) -> dict[str, tuple[int, ...]]:
    from pykbroker.tools.cluster import topics

    return {topic.name: topic.partitions for topic in topics.listed(cluster)}


# -- reset ------------------------------------------------------------------------------------------------------------


def _reset(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import groups
    from pykbroker.tools.cluster.groups import KnownOffset

    wanted = _wanted(cluster, given)
    planned: dict[str, dict[PartitionName, int]] = {}
    for group, state in groups.active_states(cluster, wanted).items():
        if state is not None:
            _print_error(
                f"Assignments can only be reset if the group '{group}' is inactive, but the current state is {state}."
            )
            planned[group] = {}
            continue
        known = groups.committed(cluster, group)
        planned[group] = _plan(cluster, given, group, known, wanted)
        if given.has("execute"):
            groups.commit(cluster, group, {place: KnownOffset(at) for place, at in planned[group].items()})
    rows = [(group, *place, at) for group, plan in planned.items() for place, at in sorted(plan.items())]
    if given.has("export"):
        alone = len(given.texts("group")) == 1
        print("".join(f"{'' if alone else group + ','}{topic},{number},{at}\n" for group, topic, number, at in rows))
    else:
        print(group_tables.reset(planned, rows), end="")


def _plan(
    cluster: AskedCluster,
    given: Given,
    group: str,
    known: dict[PartitionName, KnownOffset],
    wanted: list[str],
) -> dict[PartitionName, int]:
    """Return the new offset of each partition of a group."""
    from pykbroker.tools.cluster import reset_targets

    chosen = scope(given.texts("topic"), _existing(cluster)) if given.has("topic") else []
    target = next(filter(given.has, _TARGETS))
    if target == "from-file":
        of_group = rows_of_path(given.text("from-file") or "", wanted).get(group, {})
        return reset_targets.within_ends(cluster, of_group, ResetLines().bound)
    if given.has("all-topics"):
        places = sorted(known)
    elif given.has("topic"):
        places = chosen
    else:
        OPTIONS.end_with_usage("One of the reset scopes should be defined: --all-topics, --topic.")
    return reset_targets.planned(cluster, target, target_value(given, target), places, known, ResetLines())
