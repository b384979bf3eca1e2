"""The tables of kafka-consumer-groups, with columns as wide as Apache Kafka makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import ClusterNode, PartitionName
    from pykbroker.tools.cluster.groups import GroupDescription, GroupListing, GroupMember

MISSING: Final = "-"


@dataclass(slots=True, frozen=True)
class OffsetRow:
    """A partition of a group. A value that does not exist or is unknown is None."""

    group: str
    topic: str
    partition: int
    offset: int | None
    end: int | None
    leader_epoch: int | None = None
    consumer: str = MISSING
    host: str = MISSING
    client: str = MISSING

    @property
    def lag(self) -> int | None:
        return None if self.offset is None or self.end is None else self.end - self.offset


def text_of(value: object) -> str:
    return MISSING if value is None or value == "" else str(value)


def lines_of(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    """Return rows with columns of these widths; a width of 0 adds no padding."""
    return "".join(
        "\n" + " ".join(f"{cell:<{width}}" if width else cell for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def widest(least: int, cells: Iterable[str]) -> int:
    return max([least, *map(len, cells)])


def listing(groups: Sequence[GroupListing], *, with_type: bool, with_state: bool) -> str:
    """Return the output of --list."""
    if not with_type and not with_state:
        return "".join(f"{group.id}\n" for group in groups)
    rows = [["GROUP", *(["TYPE"] * with_type), *(["STATE"] * with_state)]]
    rows += [[group.id, *([group.type] * with_type), *([group.state] * with_state)] for group in groups]
    widths = [widest(15, (group.id for group in groups)) + 10, *[20] * (len(rows[0]) - 1)]
    return lines_of(rows, widths).removeprefix("\n") + "\n"


def offsets(rows: Sequence[OffsetRow], *, verbose: bool) -> str:
    """Return the output of --describe for a group."""
    header = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST"]
    table = [[*header, "CLIENT-ID"]]
    table += [
        [
            row.group,
            row.topic,
            str(row.partition),
            text_of(row.offset),
            text_of(row.end),
            text_of(row.lag),
            row.consumer,
            row.host,
            row.client,
        ]
        for row in rows
    ]
    widths = [
        widest(15, (row.group for row in rows)),
        widest(15, (row.topic for row in rows)),
        10,
        15,
        15,
        15,
        widest(15, (row.consumer for row in rows)),
        widest(15, (row.host for row in rows)),
        0,
    ]
    if verbose:
        for line, epoch in zip(table, ["LEADER-EPOCH", *(text_of(row.leader_epoch) for row in rows)], strict=True):
            line.insert(3, epoch)
        widths.insert(3, 15)
    return lines_of(table, widths) + "\n"


def members(group: GroupDescription, *, verbose: bool) -> str:
    """Return the output of --members for a group."""
    static = any(member.instance_id for member in group.members)
    table = [["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] * static), "HOST", "CLIENT-ID", "#PARTITIONS"]]
    table += [
        [
            group.id,
            member.id,
            *([member.instance_id or ""] * static),
            member.host,
            member.client_id,
            str(len(member.assignment)),
        ]
        for member in group.members
    ]
    widths = [
        widest(15, [group.id]),
        widest(15, (member.id for member in group.members)),
        *([widest(17, (member.instance_id or "" for member in group.members))] * static),
        widest(15, (member.host for member in group.members)),
        widest(15, (member.client_id for member in group.members)),
        15,
    ]
    if verbose:
        more = [_assignments(member) for member in group.members]
        table[0] += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        for line, (member, (current, target)) in zip(table[1:], zip(group.members, more, strict=True), strict=True):
            of_target = None if member.target is None else group.target_epoch
            line += [text_of(member.epoch), current, text_of(of_target), target]
        widths += [
            15,
            widest(20, (current for current, _ in more)),
            15,
            widest(20, (target for _, target in more)),
        ]
        return lines_of(table, widths) + "\n"
    # Apache Kafka prints a blank after the last column.
    return _with_blank(table, widths)


def _with_blank(table: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    lines = lines_of(table, widths).split("\n")[1:]
    return "".join(f"\n{line} " for line in lines) + "\n"


def _assignments(member: GroupMember) -> tuple[str, str]:
    target = MISSING if member.target is None else assignment(member.target)
    return assignment(member.assignment), target


def assignment(partitions: Sequence[PartitionName]) -> str:
    """Return the partitions as `a:0,1;b:2`."""
    if not partitions:
        return MISSING
    topics: dict[str, list[str]] = {}
    for name, number in partitions:
        topics.setdefault(name, []).append(str(number))
    return ";".join(sorted(f"{name}:{','.join(sorted(numbers))}" for name, numbers in topics.items()))


def coordinator_of(nodes: Iterable[ClusterNode], number: int) -> str:
    """Return the coordinator as `host:port  (id)`, without its address if it has left the cluster in the meantime."""
    return next((f"{node.host}:{node.port}  ({number})" for node in nodes if node.id == number), f"({number})")


def state(group: GroupDescription, coordinator: str, *, verbose: bool) -> str:
    """Return the output of --state for a group."""
    table = [["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]]
    table.append([group.id, coordinator, text_of(group.assignor), group.state])
    widths = [widest(15, [group.id]), max(25, len(coordinator)), 20, 20]
    if verbose:
        table[0] += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        table[1] += [text_of(group.epoch), text_of(group.target_epoch)]
        widths += [15, 25]
    table[0].append("#MEMBERS")
    table[1].append(str(len(group.members)))
    return lines_of(table, [*widths, 0]) + "\n"


def reset(groups: Iterable[str], rows: Sequence[tuple[str, str, int, int]]) -> str:
    """Return the table of a reset: group, topic, partition and new offset."""
    table = [["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]]
    table += [[group, topic, str(partition), str(offset)] for group, topic, partition, offset in rows]
    widths = [widest(15, groups), widest(15, (row[1] for row in rows)), 10, 0]
    return lines_of(table, widths) + "\n"


def deleted(rows: Sequence[tuple[str, str, str]]) -> str:
    """Return the table of a deletion: topic, partition and result."""
    table = [["TOPIC", "PARTITION", "STATUS"], *([topic, number, said] for topic, number, said in rows)]
    return lines_of(table, [widest(15, (row[0] for row in rows)), 10, 15]) + "\n"


def table_of_groups(rows: Sequence[tuple[str, str, str]]) -> str:
    """Return the output of kafka-groups: id, type and protocol. The longest of all cells sets the width of both
    columns."""
    width = widest(20, (cell for row in rows for cell in row))
    return lines_of([("GROUP", "TYPE", "PROTOCOL"), *rows], [width, width, 0]).removeprefix("\n") + "\n"
