"""The whole cluster through faults; a failing seed is printed, with the end of its story."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from pykbroker_worlds.history.events import History
from pykbroker_worlds.simulated.sim_cluster import SimCluster
from tests.simulation.cluster_run import Outcome, Watcher, long, run_cluster
from tests.simulation.cluster_run.plan import plan_of
from tests.simulation.cluster_run.regressions import REGRESSIONS
from tests.simulation.fresh_seeds import ROOT, fresh_seeds, seeds_of_commit
from tests.simulation.traces import printed_twice

pytestmark = pytest.mark.slow

#: The number of seeds in one test, and the number of seeds of a long run.
CHUNK, SEEDS = 5, 300
#: A commit tries one part of the regressions, because each is an ordinary seed after the next change of the product.
#: A long run tries them all.
PARTS = 5


def run_seeds(seeds: list[int]) -> None:
    for seed in seeds:
        try:
            run_cluster(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


def test_some_seeds_that_found_something() -> None:
    run_seeds(sorted(REGRESSIONS)[seeds_of_commit(ROOT) % PARTS :: PARTS])


@pytest.mark.long(amount="1 seed")
@pytest.mark.parametrize("seed", sorted(REGRESSIONS))
def test_seeds_that_found_something(seed: int) -> None:
    run_seeds([seed])


def test_seeds_that_no_earlier_commit_has_tried() -> None:
    run_seeds(fresh_seeds(0, CHUNK))


def test_the_seeds_of_a_commit_follow_from_it(tmp_path: Path) -> None:
    assert seeds_of_commit(tmp_path) == 0
    assert seeds_of_commit(ROOT) == seeds_of_commit(ROOT)
    chunks = [fresh_seeds(number, CHUNK, 4) for number in range(4)]
    first = chunks[0][0]
    assert [seed for chunk in chunks for seed in chunk] == list(range(first, first + CHUNK * 4))


@pytest.mark.long(amount="5 seeds")
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_seeds(first: int) -> None:
    run_seeds(list(range(first, first + CHUNK)))


class Watch:
    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.looks = 0
        self.starts_at_rest: list[int] = []
        cluster.world.after_event.append(self.look)

    def look(self) -> None:
        self.looks += 1

    def at_rest(self) -> None:
        self.starts_at_rest = [broker.starts for broker in self.cluster.brokers.values()]


def test_a_watcher_sees_every_event_and_the_end() -> None:
    watchers: list[Watch] = []

    def watch(cluster: SimCluster, history: History) -> AbstractContextManager[Watcher]:
        watchers.append(Watch(cluster))
        return nullcontext(watchers[-1])

    run_cluster(3, watch=watch)
    (watcher,) = watchers
    assert watcher.looks > 10_000
    assert min(watcher.starts_at_rest) >= 1


def test_a_broken_run_tells_its_story() -> None:
    class Broken(Watch):
        def at_rest(self) -> None:
            raise AssertionError("does not hold")

    with pytest.raises(AssertionError, match="does not hold") as caught:
        run_cluster(0, watch=lambda cluster, history: nullcontext(Broken(cluster)))
    (note,) = caught.value.__notes__
    assert "make sim SEED=0" in note
    assert "fault 0" in note
    assert "the history holds" in note


def test_plans_are_of_many_kinds() -> None:
    plans = [plan_of(seed) for seed in range(2_000)]
    kinds = {fault.kind for plan in plans for fault in plan.faults}
    assert len(kinds) == 22
    assert {plan.layout.count for plan in plans} == {3, 4, 5, 6}
    assert not any(
        fault.kind.value.startswith("power") for plan in plans for fault in plan.faults if not plan.may_lose_power
    )


def test_a_seed_gives_the_same_trace_in_two_processes() -> None:
    program = (
        "from tests.simulation.cluster_run import run_cluster\n"
        "outcome = run_cluster(8)\n"
        "print(outcome.digest, outcome.events, outcome.simulated_seconds)\n"
    )
    found = printed_twice(program)
    assert found[0] == found[1]
    assert int(found[0].split()[1]) > 100


def note(first: int, code: str, failed: dict[str, str] | None = None, run: str = "cluster") -> long.Note:
    return {
        "run": run,
        "first": first,
        "count": long.CHUNK,
        "failed": failed or {},
        "cpu_seconds": 75.0,
        "events": 1,
        "simulated_seconds": 900,
        "date": "2026-11-23 01:00",
        "commit": f"commit of {code}",
        "code": code,
    }


def test_a_long_run_goes_on_where_it_was() -> None:
    notes = [note(0, "this"), note(50, "other"), note(100, "this", {"107": "Violation: P1"})]

    def left(code: str | None, more: list[long.Note]) -> list[int]:
        return [first for _, first in long.left([*notes, *more], code, {"cluster": 200})]

    assert left("this", []) == [50, 150]
    assert left("this+", []) == [0, 50, 100, 150]
    assert left(None, []) == [100, 150]
    assert left(None, [note(100, "next")]) == [150]
    assert left(None, [note(150, "this", run="shares")]) == [100, 150]


def test_a_long_run_does_some_of_each_run_all_the_time() -> None:
    chunks = long.left([note(50, "this", run="shares")], "this", {"cluster": 200, "shares": 100})
    assert chunks == [("cluster", 0), ("shares", 0), ("cluster", 50), ("cluster", 100), ("cluster", 150)]


def test_a_chunk_runs_the_seeds_of_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def run(seed: int) -> Outcome:
        seeds.append(seed)
        if seed == 101:
            raise AssertionError("broken")
        return Outcome(seed, "", 10, 2.0, [])

    monkeypatch.setitem(long.RUNS, "shares", long.LongRun(run, 100, ""))
    found = long.run_chunk(("shares", 100), 3)
    assert seeds == [100, 101, 102]
    assert (found["run"], found["first"], found["events"], found["failed"]) == (
        "shares",
        100,
        20,
        {"101": "AssertionError: broken"},
    )


def test_the_page_of_long_runs_names_what_failed() -> None:
    notes = [note(0, "a"), note(50, "a", {"61": "Violation: P1"}), note(0, "b"), note(0, "b", {"3": "S1"}, "shares")]
    text = long.page(notes)
    assert "| commit of a | cluster | 100 | 1 | 0.5 | 1.5 | 2026-11-23 01:00 |" in text
    assert "| commit of b | cluster | 50 | 0 |" in text
    assert "| commit of b | shares | 50 | 1 |" in text
    assert "* `make sim SEED=61` at commit of a: Violation: P1" in text
    assert '* `make sim SEED=3 SIM_ARGS="--shares"` at commit of b: S1' in text
    assert "150 seeds have run, each counted once; 2 failed with the\nnewest code that ran them." in text
    assert "SEED=61" not in long.page([*notes, note(50, "b")])
