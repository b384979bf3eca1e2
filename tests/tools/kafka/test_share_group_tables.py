"""The tables of kafka-share-groups: widths, order and missing values."""

from __future__ import annotations

from pykbroker.tools.cluster.groups import GroupDescription, GroupListing, GroupMember
from pykbroker.tools.cluster.share_groups import SharePosition
from pykbroker.tools.kafka.share_group_tables import deleted, members, offsets, state, states

LONG = "g" * 17


def test_a_list_with_states() -> None:
    groups = [GroupListing(LONG, "Share", "share", "Stable"), GroupListing("b", "Share", "share", "Empty")]
    assert states(groups) == f"{'GROUP':<17} STATE\n{LONG} Stable\n{'b':<17} Empty\n"
    assert states([]) == f"{'GROUP':<15} STATE\n"


def test_offsets_in_the_order_of_partitions() -> None:
    known = {("t", 10): SharePosition(7, None, 3), ("t", 2): SharePosition(None, None, 1)}
    lines = offsets("g", known, verbose=False).split("\n")
    assert lines[1] == f"{'GROUP':<15} {'TOPIC':<15} {'PARTITION':<10} {'START-OFFSET':<13} LAG"
    assert [line.split() for line in lines[2:4]] == [["g", "t", "2", "-", "-"], ["g", "t", "10", "7", "-"]]
    verbose = offsets(LONG, known, verbose=True).split("\n")
    assert verbose[1].index("LEADER-EPOCH") == 18 + 16 + 11
    # A partition without a start has no leader epoch either.
    assert [line.split()[3:] for line in verbose[2:4]] == [["-", "-", "-"], ["3", "7", "-"]]


def test_members_by_their_ids() -> None:
    first = GroupMember("a", "client", "/h", assignment=(("t", 10), ("t", 2), ("s", 0)), epoch=4)
    group = GroupDescription("g", "Share", "Stable", "simple", 1, (GroupMember("b", "client", "/h", epoch=5), first))
    rows = members(group, verbose=True).split("\n")
    assert rows[1].split()[4:] == ["#PARTITIONS", "MEMBER-EPOCH", "ASSIGNMENT"]
    assert rows[2].split() == ["g", "a", "/h", "client", "3", "4", "s:0;t:2,10"]
    assert rows[3].split() == ["g", "b", "/h", "client", "0", "5"]
    assert members(group, verbose=False).split("\n")[2].split()[4:] == ["3", "s:0;t:2,10"]


def test_states_and_deletions() -> None:
    group = GroupDescription("g", "Share", "Empty", "simple", 1, (), 3, 2)
    assert state(group, "h:1  (1)", verbose=False).split("\n")[2].split() == ["g", "h:1", "(1)", "Empty", "0"]
    assert state(group, "h:1  (1)", verbose=True).split("\n")[2].split()[3:] == ["Empty", "3", "2", "0"]
    assert deleted({"b": "Successful", "a": "Error: x"}) == (
        f"\n{'TOPIC':<15} STATUS\n{'a':<15} Error: x\n{'b':<15} Successful\n"
    )
