"""The tables of kafka-consumer-groups: widths, blanks and missing values."""

from __future__ import annotations

from pykbroker.tools.cluster.groups import GroupDescription, GroupListing, GroupMember
from pykbroker.tools.kafka.group_tables import OffsetRow, assignment, listing, members, offsets, reset, state


def test_a_list_is_plain_or_has_columns() -> None:
    groups = [
        GroupListing("a", "Classic", "consumer", "Stable"),
        GroupListing("b" * 20, "Consumer", "consumer", "Empty"),
    ]
    assert listing(groups, with_type=False, with_state=False) == f"a\n{'b' * 20}\n"
    lines = listing(groups, with_type=True, with_state=True).splitlines()
    assert lines[0] == f"{'GROUP':<30} {'TYPE':<20} {'STATE':<20}"
    assert lines[2] == f"{'b' * 20:<30} {'Consumer':<20} {'Empty':<20}"
    assert listing([], with_type=False, with_state=False) == ""


def test_offsets_and_their_lag() -> None:
    rows = [OffsetRow("g", "t" * 18, 0, 3, 10, 5, "c" * 20, "/1.2.3.4", "me"), OffsetRow("g", "t", 1, None, 4)]
    lines = offsets(rows, verbose=False).split("\n")
    assert lines[0] == lines[-1] == ""
    assert lines[1].split() == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG",
                                "CONSUMER-ID", "HOST", "CLIENT-ID"]  # fmt: skip
    assert lines[2].split() == ["g", "t" * 18, "0", "3", "10", "7", "c" * 20, "/1.2.3.4", "me"]
    assert lines[3].split() == ["g", "t", "1", "-", "4", "-", "-", "-", "-"]
    assert lines[1].index("PARTITION") == 16 + 19
    verbose = offsets(rows, verbose=True).split("\n")
    assert verbose[1].split()[3] == "LEADER-EPOCH"
    assert [line.split()[3] for line in verbose[2:4]] == ["5", "-"]


def test_members_of_both_protocols() -> None:
    classic = GroupDescription("g", "Classic", "Stable", "range", 1, (GroupMember("m", "c", "/h", "i", (("t", 0),)),))
    header, row = members(classic, verbose=False).strip("\n").split("\n")
    assert header.split() == ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    assert row.split() == ["g", "m", "i", "/h", "c", "1"]
    member = GroupMember("m", "c", "/h", None, (("t", 1),), (("t", 1), ("t", 0)), 4)
    modern = GroupDescription("g", "Consumer", "Stable", "uniform", 1, (member,), 5, 6)
    _, row = members(modern, verbose=True).strip("\n").split("\n")
    assert row.split() == ["g", "m", "/h", "c", "1", "4", "t:1", "6", "t:0,1"]
    assert members(GroupDescription("g", "Classic", "Empty", "", 1), verbose=False).count("\n") == 2


def test_assignments() -> None:
    assert assignment([("b", 2), ("a", 1), ("a", 0)]) == "a:0,1;b:2"
    assert assignment([]) == "-"


def test_states_and_resets() -> None:
    group = GroupDescription("g", "Classic", "Empty", "", 1)
    assert state(group, "h:1  (1)", verbose=False).split("\n")[2].split() == ["g", "h:1", "(1)", "-", "Empty", "0"]
    assert state(group, "h:1  (1)", verbose=True).split("\n")[2].split()[4:] == ["Empty", "-", "-", "0"]
    assert reset(["g" * 17], []) == f"\n{'GROUP':<17} {'TOPIC':<15} {'PARTITION':<10} NEW-OFFSET\n"
