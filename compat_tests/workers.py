"""What two workers do at once (`pytest -n 2`): each takes a folder at a time, with everything that its tests share.

Most of the time of these tests is waiting for JVMs and for timeouts of clients, so two of them get on well even on two
cores. More workers than two would need more memory than a small machine has: each has its own nodes and JVMs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer

#: What takes minutes, the longest first, so that both workers end at about the same time; then the other folders.
LONGEST_FIRST = (
    "spark",
    "on_disk",
    "exactly_once",
    "mixed_cluster",
    "container",
    "differential",
    "kafka_tools",
    "three_nodes",
    "python",
    "consumer_groups",
    "torture",
)


def folder(nodeid: str) -> str:
    """compat_tests/spark/pipeline/test_lake.py::test_it -> spark"""
    return nodeid.partition("::")[0].split("/")[1]


def rank(nodeid: str) -> int:
    """By this the tests are ordered, of which the workers take one folder after the other."""
    name = folder(nodeid)
    return LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)


class ByFolder(LoadScopeScheduling):  # type: ignore[misc]
    """The nodes, the Spark session and the programs that a folder's tests share are started by one worker only."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # by the number of tests, which says nothing of their length

    def _split_scope(self, nodeid: str) -> str:
        return folder(nodeid)
