"""Deal the compat tests out to the workers of a parallel run (`pytest -n 4`), in units whose tests share something.

Most of the time of these tests is waiting, for JVMs and for time-outs of clients. So four workers get on well on two
cores. A unit is a folder: its nodes, its Spark session and its programs are started by one worker. A folder that takes
longer than `MOST_SECONDS` is divided into its files, and each worker that takes one of them starts what it needs once.
The table of the last stored run (tests/whole_run/timings.json) says how long files take. The longest unit goes first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

from tests.whole_run import timings

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer

MOST_SECONDS: Final = 100.0
#: Its images are built once, which takes longer than any of its files.
NEVER_DIVIDED: Final = frozenset({"container"})
#: For a file that the table does not know yet.
UNKNOWN_SECONDS: Final = 20.0


def folder(file: str) -> str:
    """compat_tests/spark/pipeline/test_lake.py -> spark"""
    return file.split("/")[1]


def units(files: Mapping[str, float]) -> dict[str, str]:
    """The unit of each file. `files`: how many seconds each takes, by its path."""
    seconds: dict[str, float] = defaultdict(float)
    for file, spent in files.items():
        seconds[folder(file)] += spent
    return {
        file: file if seconds[folder(file)] > MOST_SECONDS and folder(file) not in NEVER_DIVIDED else folder(file)
        for file in files
    }


@cache
def _stored() -> dict[str, float]:
    return {file: spent.seconds for file, spent in timings.read().items() if file.startswith("compat_tests/")}


class Units:
    """The units of a run, which may hold files that the table lacks."""

    def __init__(self, collected: list[str], stored: Mapping[str, float]) -> None:
        files = dict.fromkeys(nodeid.partition("::")[0] for nodeid in collected)
        known = {file: stored.get(file, UNKNOWN_SECONDS) for file in files}
        self._units = units({**stored, **known})
        self._seconds: dict[str, float] = defaultdict(float)
        for file, spent in known.items():
            self._seconds[self._units[file]] += spent

    def of(self, nodeid: str) -> str:
        return self._units[nodeid.partition("::")[0]]

    def order(self, nodeid: str) -> tuple[float, str]:
        """Sorts tests so that the unit that takes longest comes first, and that the tests of a unit stay together."""
        unit = self.of(nodeid)
        return -self._seconds[unit], unit


def arrange(items: list[pytest.Item]) -> None:
    """Bring collected tests into the order in which the workers take their units."""
    found = Units([item.nodeid for item in items], _stored())
    items.sort(key=lambda item: found.order(item.nodeid))


class ByUnit(LoadScopeScheduling):  # type: ignore[misc]
    """Each unit goes to one worker. `arrange` has put the units into their order already."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # by the number of tests, which says nothing of their length

    def _split_scope(self, nodeid: str) -> str:
        return Units([nodeid], _stored()).of(nodeid)
