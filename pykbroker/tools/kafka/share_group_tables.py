"""The tables of kafka-share-groups, with columns as wide as Apache Kafka makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pykbroker.tools.kafka.group_tables import lines_of, text_of, widest

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import PartitionName
    from pykbroker.tools.cluster.groups import GroupDescription, GroupListing
    from pykbroker.tools.cluster.share_groups import SharePosition


def states(groups: Sequence[GroupListing]) -> str:
    """Return the output of --list --state."""
    rows = [("GROUP", "STATE"), *((group.id, group.state) for group in groups)]
    return lines_of(rows, [widest(15, (group.id for group in groups)), 0]).removeprefix("\n") + "\n"


def offsets(group: str, positions: Mapping[PartitionName, SharePosition], *, verbose: bool) -> str:
    """Return the output of --describe for a group."""
    table = [["GROUP", "TOPIC", "PARTITION", *(["LEADER-EPOCH"] * verbose), "START-OFFSET", "LAG"]]
    for (topic, number), at in sorted(positions.items()):
        # Apache Kafka prints nothing of a partition without a start.
        epoch, lag = (None, None) if at.start is None else (at.leader_epoch, at.lag)
        cells = [group, topic, str(number), *([text_of(epoch)] * verbose), text_of(at.start), text_of(lag)]
        table.append(cells)
    topics = widest(15, (topic for topic, _ in positions))
    return lines_of(table, [widest(15, [group]), topics, 10, *([13] * verbose), 13, 0]) + "\n"


def members(group: GroupDescription, *, verbose: bool) -> str:
    """Return the output of --members for a group that has members."""
    table = [["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", *(["MEMBER-EPOCH"] * verbose), "ASSIGNMENT"]]
    for one in sorted(group.members, key=lambda member: member.id):
        cells = [group.id, one.id, one.host, one.client_id, str(len(one.assignment))]
        table.append([*cells, *([text_of(one.epoch)] * verbose), _assignment(one.assignment)])
    widths = [
        widest(15, [group.id]),
        widest(15, (one.id for one in group.members)),
        widest(15, (one.host for one in group.members)),
        widest(15, (one.client_id for one in group.members)),
        12,
        *([13] * verbose),
        0,
    ]
    return lines_of(table, widths) + "\n"


def _assignment(partitions: Sequence[PartitionName]) -> str:
    """Return the partitions as `a:0,1;b:2`."""
    topics: dict[str, list[int]] = {}
    for name, number in partitions:
        topics.setdefault(name, []).append(number)
    return ";".join(sorted(f"{name}:{','.join(map(str, sorted(numbers)))}" for name, numbers in topics.items()))


def state(group: GroupDescription, coordinator: str, *, verbose: bool) -> str:
    """Return the output of --describe --state for a group."""
    epochs = (["GROUP-EPOCH", "ASSIGNMENT-EPOCH"], [text_of(group.epoch), text_of(group.target_epoch)])
    table = [
        ["GROUP", "COORDINATOR (ID)", "STATE", *(epochs[0] * verbose), "#MEMBERS"],
        [group.id, coordinator, group.state, *(epochs[1] * verbose), str(len(group.members))],
    ]
    widths = [widest(15, [group.id]), max(25, len(coordinator)), 15, *([12, 17] * verbose), 0]
    return lines_of(table, widths) + "\n"


def deleted(outcomes: Mapping[str, str]) -> str:
    """Return the table of --delete-offsets: topic and result."""
    table = [("TOPIC", "STATUS"), *sorted(outcomes.items())]
    return lines_of(table, [widest(15, outcomes), 0]) + "\n"
