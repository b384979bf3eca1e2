"""Deal the compat tests out to the workers of a parallel run (`pytest -n 4`), in units whose tests share something.

Most of the time of these tests is waiting, for JVMs and for time-outs of clients. So four workers get on well on two
cores. A unit is a folder: its nodes, its Spark session and its programs are started by one worker. A folder that takes
longer than `MOST_SECONDS` is divided into its files, and each worker that takes one of them starts what it needs once.
The table of the last stored run (tests/whole_run/timings.json) says how long files take. The longest unit goes first.

All units of Spark go to two workers while there are others to be run. A worker keeps its session, whose JVM has planned
such queries before: each further session costs some 25 seconds of CPU.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

from tests.whole_run import timings

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

MOST_SECONDS: Final = 100.0
#: The images of container are built once, which takes longer than any of its files. The six nodes of three_nodes are
#: started once, and its last file looks at what the others have written. So are the two nodes of spark/segments.
NEVER_DIVIDED: Final = ("container", "three_nodes", "spark/segments")
#: Its units share a session, and this many workers have one.
SPARK: Final = "spark"
SPARK_WORKERS: Final = 2
#: For a file that the table does not know yet.
UNKNOWN_SECONDS: Final = 20.0


def folder(file: str) -> str:
    """compat_tests/spark/pipeline/test_lake.py -> spark"""
    return file.split("/")[1]


@cache
def _stored() -> dict[str, float]:
    """How many seconds each file took in the stored run."""
    return {file: spent.seconds for file, spent in timings.read().items() if file.startswith("compat_tests/")}


@cache
def _divided() -> frozenset[str]:
    """The folders whose files are units of their own."""
    seconds: dict[str, float] = defaultdict(float)
    for file, spent in _stored().items():
        seconds[folder(file)] += spent
    return frozenset(name for name, spent in seconds.items() if spent > MOST_SECONDS)


def unit(nodeid: str) -> str:
    """The unit of a test: its folder, or its file if the folder is divided."""
    file = nodeid.partition("::")[0]
    for whole in NEVER_DIVIDED:
        if file.startswith(f"compat_tests/{whole}/"):
            return whole
    return file if folder(file) in _divided() else folder(file)


def is_spark(unit: str) -> bool:
    return unit.removeprefix("compat_tests/").partition("/")[0] == SPARK


def arrange(items: list[pytest.Item]) -> None:
    """Sort tests so that the unit that takes longest comes first, and that the tests of a unit stay together."""
    seconds: dict[str, float] = defaultdict(float)
    for file in {item.nodeid.partition("::")[0] for item in items}:
        seconds[unit(file)] += _stored().get(file, UNKNOWN_SECONDS)
    items.sort(key=lambda item: (-seconds[unit(item.nodeid)], unit(item.nodeid)))


class ByUnit(LoadScopeScheduling):  # type: ignore[misc]
    """Each unit goes to one worker. `arrange` has put the units into their order already."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # by the number of tests, which says nothing of their length
        self._with_spark: set[WorkerController] = set()

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        self._with_spark.discard(node)
        return super().remove_node(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        wanted = self._next_for(node)
        if is_spark(wanted):
            self._with_spark.add(node)
        self.workqueue.move_to_end(wanted, last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: WorkerController) -> str:
        """The longest unit of the kind that this worker is to take, or of the other kind if there is none."""
        takes_spark = node in self._with_spark or len(self._with_spark) < SPARK_WORKERS
        return next((one for one in self.workqueue if is_spark(one) is takes_spark), next(iter(self.workqueue)))
