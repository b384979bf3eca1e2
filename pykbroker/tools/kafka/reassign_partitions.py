"""kafka-reassign-partitions: propose, start, verify, cancel, list and throttle moves of partitions between brokers, and
of replicas between the directories of a broker."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.reassign_plan import as_json, brokers_of, proposed, topics_to_move, wanted_moves
from pykbroker.tools.cluster.reassign_throttles import throttled
from pykbroker.tools.cluster.replicas_on_disk import ReplicaName, ReplicaPlace
from pykbroker.tools.kafka.reach import BAD_START, BOOTSTRAP, COMMAND_CONFIG, opened, said_of
from pykbroker.tools.kafka.tool_options import Accepted, Given, OptionError, Options

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
    from pykbroker.tools.cluster.reassignments import OngoingMove

_ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
_FILE: Final = "reassignment-json-file"
#: action -> the options that it needs, and the options that it allows
_NEEDS: Final = {
    "verify": ((_FILE,), ("preserve-throttles",)),
    "generate": (("topics-to-move-json-file", "broker-list"), ("disable-rack-aware",)),
    "execute": (
        (_FILE,),
        ("additional", "disallow-replication-factor-change", "replica-alter-log-dirs-throttle", "throttle", "timeout"),
    ),
    "cancel": ((_FILE,), ("preserve-throttles", "timeout")),
    "list": ((), ()),
}

OPTIONS = Options(
    "This tool helps to move topic partitions between replicas.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("additional", "Start these moves beside others that are under way."),
        Accepted("bootstrap-controller", "", "host:port,...", not_served="name brokers with --bootstrap-server"),
        Accepted("broker-list", "The brokers that --generate spreads partitions over.", "0,1,..."),
        Accepted("cancel", "Call moves back."),
        Accepted("disable-rack-aware", "Propose without a look at racks."),
        Accepted("disallow-replication-factor-change", "Refuse moves that change the number of replicas."),
        Accepted("execute", "Start moves."),
        Accepted("generate", "Propose an assignment; nothing is moved."),
        Accepted("list", "List the moves that are under way."),
        Accepted("preserve-throttles", "Leave throttles as they are."),
        Accepted("reassignment-json-file", "The moves, as --generate proposes them.", "file"),
        Accepted("replica-alter-log-dirs-throttle", "Limit moves between directories.", "bytes/s", int, "-1"),
        Accepted("throttle", "Limit moves between brokers.", "bytes/s", int, "-1"),
        Accepted("timeout", "How long to wait until moves between directories can begin.", "ms", int, "10000"),
        Accepted("topics-to-move-json-file", '{"topics": [{"topic": ...}], "version": 1}', "file"),
        Accepted("verify", "Say how far moves are, and take their throttles away when they are done."),
    ],
)


def run(words: Sequence[str]) -> int:
    try:
        given = OPTIONS.parse(words)
        OPTIONS.help_or_version(words, given)
        action = _check(given)
        cluster = opened(given)
    except BAD_START as error:
        print(said_of(error), file=sys.stderr)
        return 1
    with cluster:
        try:
            {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}[action](
                cluster, given
            )
        except (AskFailed, ValueError, OptionError, OSError) as error:
            print(f"Error: {said_of(error)}")
            return 1
    return 0


def _check(given: Given) -> str:
    actions = [action for action in _ACTIONS if given.has(action)]
    if len(actions) != 1:
        written = ", ".join(f"--{action}" for action in _ACTIONS)
        OPTIONS.end_with_usage(f"Command must include exactly one action: {written}")
    if not given.has("bootstrap-server"):
        OPTIONS.end_with_usage("Please specify either --bootstrap-server or --bootstrap-controller")
    (action,) = actions
    needed, permitted = _NEEDS[action]
    OPTIONS.require(given, *needed)
    for option in given.names():
        if option not in (action, *needed, *permitted, "bootstrap-server", "command-config"):
            OPTIONS.end_with_usage(f'Option "[{option}]" can\'t be used with action "[{action}]"')
    return action


# -- the actions ------------------------------------------------------------------------------------------------------


def _generate(cluster: AskedCluster, given: Given) -> None:
    from random import Random

    from pykbroker.tools.cluster import moving

    names = topics_to_move(_text(given, "topics-to-move-json-file"))
    brokers = brokers_of(given.text("broker-list") or "")
    current = moving.assignment_of(cluster, names)
    racks = moving.racks_of(cluster, brokers, disregarded=given.has("disable-rack-aware"))
    print(f"Current partition replica assignment\n{moving.current_json(cluster, current)}\n")
    print(f"Proposed partition reassignment configuration\n{as_json(proposed(current, racks, Random()))}")  # noqa: S311  # where replicas go is no secret


def _execute(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import moving, reassignments

    wanted = wanted_moves(_text(given, _FILE))
    under_way = reassignments.ongoing(cluster)
    if under_way and not given.has("additional"):
        raise ValueError(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
            "create a new partition assignment in addition to the existing one. The --additional flag can also be "
            "used to change the throttle by resubmitting the current reassignment."
        )
    known = {node.id for node in cluster.nodes()}
    moving.check_brokers([broker for replicas in wanted.replicas.values() for broker in replicas], known)
    current = moving.current(cluster, wanted.replicas)
    print(
        f"Current partition replica assignment\n\n{moving.current_json(cluster, current)}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    rate, directory_rate = given.integer("throttle"), given.integer("replica-alter-log-dirs-throttle")
    if rate >= 0 or directory_rate >= 0:
        print(
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
            "removed."
        )
    if rate >= 0:
        moving.throttle(cluster, throttled(under_way, wanted.replicas, current), rate)
        print(f"The inter-broker throttle limit was set to {rate} B/s")
    if directory_rate >= 0:
        moving.throttle_directories(cluster, [replica.broker for replica in wanted.directories], directory_rate)
        print(f"The replica-alter-dir throttle limit was set to {directory_rate} B/s")
    failures = reassignments.alter(
        cluster, wanted.replicas, may_change_replication_factor=not given.has("disallow-replication-factor-change")
    )
    if failures:
        said = "\n".join(f"{topic}-{number}: {failures[topic, number]}" for topic, number in sorted(failures))
        raise ValueError(f"Error reassigning partition(s):\n{said}")
    print(f"Successfully started partition reassignment{_s(wanted.replicas)} for {_names(wanted.replicas)}")
    _move_directories(cluster, wanted.directories, given.integer("timeout"))


def _move_directories(cluster: AskedCluster, wanted: Mapping[ReplicaName, str], timeout_ms: int) -> None:
    """Begin these moves. If a broker does not have a replica yet, its move is tried again until the timeout."""
    from pykbroker.tools.cluster import moving

    for replica, directory in moving.directory_moves(cluster, wanted, timeout_ms):
        print(
            f"Successfully started moving log directory to {directory} for replica "
            f"{replica.topic}-{replica.partition} with broker {replica.broker} "
        )


def _verify(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import moving, reassignments, replicas_on_disk

    wanted = wanted_moves(_text(given, _FILE))
    under_way = reassignments.ongoing(cluster)
    now = moving.current(cluster, wanted.replicas, missing_is_error=False)
    for line in verified_lines(wanted.replicas, now, under_way):
        print(line)
    places = replicas_on_disk.places(cluster, wanted.directories)
    print("\n".join(directory_lines(wanted.directories, places)))
    is_moving = any(place.future is not None for place in places.values())
    if not under_way and not is_moving and not given.has("preserve-throttles"):
        _clear_throttles(cluster, wanted.replicas)


def directory_lines(wanted: Mapping[ReplicaName, str], places: Mapping[ReplicaName, ReplicaPlace]) -> list[str]:
    """Return a line with the progress of each move to a directory."""
    lines = []
    for replica in sorted(wanted):
        place, directory = places[replica], wanted[replica]
        name = f"Partition {replica.topic}-{replica.partition}"
        if place.current is None:
            lines.append(
                f"{name} is not found in any live log dir on broker {replica.broker}. There is likely an offline log "
                "directory on the broker."
            )
        elif place.future is None and place.current == directory:
            lines.append(f"Reassignment of replica {replica} completed successfully.")
        elif place.future is None:
            lines.append(
                f"{name} on broker {replica.broker} is not being moved from log dir {place.current} to {directory}."
            )
        elif place.future == directory:
            lines.append(f"Reassignment of replica {replica} is still in progress.")
        else:
            lines.append(
                f"{name} on broker {replica.broker} is being moved to log dir {place.future} instead of {directory}."
            )
    return lines


def verified_lines(
    wanted: Mapping[PartitionName, Sequence[int]],
    current: Mapping[PartitionName, Sequence[int]],
    under_way: Mapping[PartitionName, OngoingMove],
) -> list[str]:
    lines = ["Status of partition reassignment:"]
    for topic, number in sorted(wanted):
        name, place = f"{topic}-{number}", (topic, number)
        if place in under_way:
            lines.append(f"Reassignment of partition {name} is still in progress.")
        elif list(current.get(place, ())) == list(wanted[place]):
            lines.append(f"Reassignment of partition {name} is completed.")
        else:
            now, then = (",".join(map(str, replicas)) for replicas in (current.get(place, ()), wanted[place]))
            lines.append(
                f"There is no active reassignment of partition {name}, but replica set is {now} rather than {then}."
            )
    return lines


def _cancel(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import reassignments, replicas_on_disk

    wanted = wanted_moves(_text(given, _FILE))
    active = reassignments.ongoing(cluster, wanted.replicas)
    if active:
        failures = reassignments.alter(cluster, dict.fromkeys(active))
        if failures:
            said = "\n".join(f"{topic}-{number}: {failures[topic, number]}" for topic, number in sorted(failures))
            raise ValueError(f"Error cancelling partition reassignment{_s(failures)} for:\n{said}")
        print(f"Successfully cancelled partition reassignment{_s(active)} for: {_names(active)}")
    else:
        print("None of the specified partition reassignments are active.")
    if back := replicas_on_disk.ways_back(replicas_on_disk.places(cluster, wanted.directories)):
        _move_directories(cluster, back, given.integer("timeout"))
    else:
        # Apache Kafka's tool prints this text without a line end.
        print("None of the specified partition moves are active.", end="")
    if not given.has("preserve-throttles"):
        _clear_throttles(cluster, wanted.replicas)


def _list(cluster: AskedCluster, _: Given) -> None:
    from pykbroker.tools.cluster import reassignments

    print(moves_text(reassignments.ongoing(cluster)))


def moves_text(moves: Mapping[PartitionName, OngoingMove]) -> str:
    if not moves:
        return "No partition reassignments found."
    lines = ["Current partition reassignments:"]
    for topic, number in sorted(moves):
        move = moves[topic, number]
        line = f"{topic}-{number}: replicas: {_joined(move.replicas)}."
        line += f" adding: {_joined(move.adding)}." if move.adding else ""
        line += f" removing: {_joined(move.removing)}." if move.removing else ""
        lines.append(line)
    return "\n".join(lines)


# -- shared helpers ---------------------------------------------------------------------------------------------------


def _text(given: Given, option: str) -> str:
    return Path(given.text(option) or "").read_text(encoding="utf-8")


def _clear_throttles(cluster: AskedCluster, wanted: Mapping[PartitionName, Sequence[int]]) -> None:
    from pykbroker.tools.cluster import moving

    brokers = moving.throttled_brokers(cluster, wanted)
    print(f"Clearing broker-level throttles on broker{_s(brokers)} {_joined(brokers)}")
    moving.clear_broker_throttles(cluster, brokers)
    names = sorted({name for name, _ in wanted})
    print(f"Clearing topic-level throttles on topic{_s(names)} {','.join(names)}")
    moving.clear_topic_throttles(cluster, names)


def _names(places: Mapping[PartitionName, object]) -> str:
    return ",".join(f"{topic}-{number}" for topic, number in sorted(places))


def _joined(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _s(things: Collection[object]) -> str:
    return "" if len(things) == 1 else "s"
