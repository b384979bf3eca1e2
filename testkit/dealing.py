"""Deal the compat tests out to the workers of a parallel run (`pytest -n 4`), in units whose tests share something.

These tests spend most of their time waiting, for JVMs and for time-outs of clients, so two cores are enough for four
workers. A unit is a folder: one worker starts its nodes, its Spark session and its programs. A folder that takes longer
than `MOST_SECONDS` is divided into its files, and each worker that takes one of them starts the resources that it needs
once. The table of the last stored run (tests/whole_run/timings.json) has the duration of each file. The longest unit
goes first.

All units of Spark go to two workers while other units are left. A worker keeps its session, because each further
session takes some 25 seconds of CPU until its JVM has planned such queries.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

from testkit import stored_timings

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

MOST_SECONDS: Final = 100.0
#: The images of container are built once, which takes longer than any of its files. The six nodes of three_nodes are
#: started once, and its last file checks what the others have written. The same is true of the two nodes of
#: spark/segments.
NEVER_DIVIDED: Final = ("container", "three_nodes", "spark/segments")
#: Its units share a session, and this many workers have one.
SPARK: Final = "spark"
SPARK_WORKERS: Final = 2
#: For a file that is not in the table yet.
UNKNOWN_SECONDS: Final = 20.0


def folder(file: str) -> str:
    """Return the folder of a file: compat_tests/spark/pipeline/test_lake.py -> spark"""
    return file.split("/")[1]


@cache
def _stored() -> dict[str, float]:
    """Return the seconds that each file took in the stored run."""
    return {file: spent.seconds for file, spent in stored_timings.read().items() if file.startswith("compat_tests/")}


@cache
def _divided() -> frozenset[str]:
    """Return the folders whose files are units of their own."""
    seconds: dict[str, float] = defaultdict(float)
    for file, spent in _stored().items():
        seconds[folder(file)] += spent
    return frozenset(name for name, spent in seconds.items() if spent > MOST_SECONDS)


def unit(nodeid: str) -> str:
    """Return the unit of a test: its folder, or its file if the folder is divided."""
    file = nodeid.partition("::")[0]
    for whole in NEVER_DIVIDED:
        if file.startswith(f"compat_tests/{whole}/"):
            return whole
    return file if folder(file) in _divided() else folder(file)


def is_spark(unit: str) -> bool:
    return unit.removeprefix("compat_tests/").partition("/")[0] == SPARK


def arrange(items: list[pytest.Item]) -> None:
    """Sort tests so that the longest unit comes first, and that the tests of a unit stay together."""
    seconds: dict[str, float] = defaultdict(float)
    for file in {item.nodeid.partition("::")[0] for item in items}:
        seconds[unit(file)] += _stored().get(file, UNKNOWN_SECONDS)
    items.sort(key=lambda item: (-seconds[unit(item.nodeid)], unit(item.nodeid)))


class ByUnit(LoadScopeScheduling):  # type: ignore[misc]
    """Each unit goes to one worker. `arrange` has already sorted the units."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # by the number of tests, which is no measure of their duration
        self._with_spark: set[WorkerController] = set()

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        self._with_spark.discard(node)
        unfinished: str | None = super().remove_node(node)
        return unfinished

    def _assign_work_unit(self, node: WorkerController) -> None:
        wanted = self._next_for(node)
        if is_spark(wanted):
            self._with_spark.add(node)
        self.workqueue.move_to_end(wanted, last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: WorkerController) -> str:
        """Return the longest unit of the kind that this worker is to take, or of the other kind if there is none."""
        takes_spark = node in self._with_spark or len(self._with_spark) < SPARK_WORKERS
        units: list[str] = list(self.workqueue)
        return next((one for one in units if is_spark(one) is takes_spark), units[0])
