"""The distribution of the compat tests over the workers (testkit/dealing.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from testkit.dealing import SPARK_WORKERS, ByUnit, is_spark, unit

#: Units of one test each, in the order of `arrange`.
UNITS = [
    "compat_tests/spark/pipeline/test_lake.py",
    "compat_tests/spark/test_spark.py",
    "spark/segments",
    "compat_tests/mixed_cluster/test_quorums.py",
    "compat_tests/spark/pipeline/test_streams.py",
    "kcat",
    "java",
    "python",
    "tls",
]


class Worker:
    """The scheduler's view of a worker: it reports nothing until the test lets it finish its units."""

    shutting_down = False

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.waiting: list[int] = []
        self.done: list[str] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.waiting += indices

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.fixture
def dealt(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the units of each of four workers, when each finishes one test after the other."""
    monkeypatch.setattr("testkit.dealing.unit", lambda nodeid: nodeid.partition("::")[0])
    option = SimpleNamespace(loadscopereorder=True)
    config: Any = SimpleNamespace(option=option, getvalue=lambda name: ["popen"] * 4)
    log: Any = SimpleNamespace(loadscopesched=lambda *said: None)
    dealer = ByUnit(config, log)
    workers: Any = [Worker(number) for number in range(4)]
    tests = [f"{each}::test" for each in UNITS]
    for worker in workers:
        dealer.add_node(worker)
        dealer.add_node_collection(worker, tests)
    dealer.schedule()
    while any(worker.waiting for worker in workers):
        for worker in workers:
            if worker.waiting:
                worker.done.append(UNITS[worker.waiting[0]])
                dealer.mark_test_complete(worker, worker.waiting.pop(0))
    return [worker.done for worker in workers]


def test_every_unit_is_run_once(dealt: list[list[str]]) -> None:
    assert sorted(one for done in dealt for one in done) == sorted(UNITS)


def test_two_workers_take_all_of_spark_before_anything_else(dealt: list[list[str]]) -> None:
    with_spark = [done for done in dealt if any(map(is_spark, done))]
    assert len(with_spark) == SPARK_WORKERS
    for done in with_spark:
        kinds = [is_spark(one) for one in done]
        assert kinds == sorted(kinds, reverse=True)


def test_the_longest_unit_of_its_kind_goes_first(dealt: list[list[str]]) -> None:
    assert dealt[0][0] == UNITS[0]
    assert "compat_tests/mixed_cluster/test_quorums.py" in (dealt[2][0], dealt[3][0])


def test_what_shares_nodes_is_one_unit() -> None:
    assert unit("compat_tests/spark/segments/test_same_rows.py::test_rows[a]") == "spark/segments"
    assert unit("compat_tests/container/test_compose.py::test_up") == "container"
    assert unit("compat_tests/spark/test_spark.py::test_read") == "compat_tests/spark/test_spark.py"
