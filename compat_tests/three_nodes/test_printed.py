"""The comparison of printed text finds what differs, and leaves out what DIFFERENCES lists. No cluster is needed."""

from __future__ import annotations

import pytest

from compat_tests.three_nodes.printed import DIFFERENCES, compared, with_symbols
from compat_tests.tool_server import Ended

ONE, OTHER, BOTH = "lW5Zt95QTkSiRbgb579-QA", "oApNltpsTq-rfecrH8yf4Q", "AQEBAQEBAQEBAQEBAQEBAQ"
TEXTS = {"/tmp/x": "‹folder›", "localhost:2390": "‹broker 1›", "2390": "‹port of broker 1›"}


def printed(main: str, out: str, err: str = "", status: int = 0) -> str:
    return compared(main, Ended(status, out, err), TEXTS)


def test_what_is_a_clusters_own_gets_a_word() -> None:
    said = printed("ClusterTool", "1 localhost 2390 /tmp/x/1 localhost:2390 12390 23900\n")
    assert "1 localhost ‹port of broker 1› ‹folder›/1 ‹broker 1› 12390 23900\n" in said


def test_the_same_id_must_stand_in_the_same_places() -> None:
    one, other = with_symbols(f"{ONE} {OTHER} {ONE} {BOTH}", f"{OTHER[::-1]} x{ONE[1:]} {OTHER[::-1]} {BOTH}")
    assert one == other == f"‹id 1› ‹id 2› ‹id 1› {BOTH}"
    one, other = with_symbols(f"{ONE} {ONE}", f"x{ONE[1:]} y{ONE[1:]}")
    assert one != other


@pytest.mark.parametrize(
    ("main", "one", "other", "same"),
    [
        ("TopicCommand", "Leader: 1	Isr: 1,2,3	", "Leader: 1	Isr: 3,1,2	", True),
        ("TopicCommand", "Leader: 1	Isr: 1,2,3	", "Leader: 1	Isr: 1,2	", False),
        ("TopicCommand", "Leader: 1	Isr: 1,2	", "Leader: 2	Isr: 1,2	", False),
        ("TopicCommand", "x.AException: one way", "x.AException: another", True),
        ("TopicCommand", "x.AException: one way", "x.BException: one way", False),
        ("FeatureCommand", "x.AException: one way", "x.AException: another", False),
        ("FeatureCommand", "Level: 1 Epoch: 7", "Level: 1 Epoch: 70", True),
        ("FeatureCommand", "Level: 1 Epoch: 7", "Level: 2 Epoch: 7", False),
        ("ClusterTool", "tells\n	at a.B(C.java:1)\n", "tells\n", True),
        ("ClusterTool", "tells\n", "tells\ntells\n", False),
        ("ClusterTool", "at 1795404893480", "at 1795404893481", True),
        ("MetadataQuorumCommand", "HighWatermark:   102", "HighWatermark: 1", True),
        ("MetadataQuorumCommand", "LeaderId:        1", "LeaderId:        2", False),
        ("BrokerApiVersionsCommand", "	Fetch(1): 4 to 18 [usable: 18],\n", "", False),
        ("BrokerApiVersionsCommand", "	StreamsGroupHeartbeat(88): 0 [usable: 0],\n", "", True),
    ],
)
def test_only_what_may_differ_is_left_out(main: str, one: str, other: str, same: bool) -> None:
    assert (printed(main, f"{one}\n") == printed(main, f"{other}\n")) == same


def test_how_a_tool_ended_is_compared_and_where_it_printed() -> None:
    assert printed("ClusterTool", "x") != printed("ClusterTool", "x", status=1)
    assert printed("ClusterTool", "x") != printed("ClusterTool", "", "x")


def test_each_difference_has_a_reason() -> None:
    assert all(each.what and each.reason for each in DIFFERENCES)
    assert len(DIFFERENCES) <= 20
