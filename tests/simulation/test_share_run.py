"""The whole cluster with share groups through faults; a failing seed is printed, with the end of its story."""

from __future__ import annotations

import pytest

from tests.simulation.cluster_run.plan import plan_of
from tests.simulation.fresh_seeds import fresh_seeds
from tests.simulation.history.events import Acknowledged, Delivered, History
from tests.simulation.share_run import run_shares
from tests.simulation.share_run.share_plan import share_plan_of
from tests.simulation.share_run.share_workload import ShareWorkload
from tests.simulation.traces import printed_twice

pytestmark = pytest.mark.slow

#: The number of seeds in one test, the number of tests with seeds that no earlier commit has tried, and the number of
#: seeds of a long run.
CHUNK, FRESH, SEEDS = 3, 2, 300
#: seed -> what it found
REGRESSIONS: dict[int, str] = {
    11: "a reset of offsets had the state epoch of the one before it, so the leader of the first one overwrote it",
    323: "a follower did not take a batch that began before its end, although its leader had deleted everything there",
    936074250: "a leader sent acknowledgements after the next one had read the state",
    0: "a timer that fires at the end of a lock rounds its time down, finds nothing to end, and fires again for ever",
    48: "a leader has deleted records before a follower with others there was told what is committed",
}


def run_seeds(seeds: list[int]) -> None:
    for seed in seeds:
        try:
            run_shares(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed} with share groups") from error


@pytest.mark.parametrize("seed", sorted(REGRESSIONS))
def test_seeds_that_found_something(seed: int) -> None:
    run_seeds([seed])


def test_the_first_seeds() -> None:
    run_seeds(list(range(1, 1 + CHUNK)))


@pytest.mark.parametrize("number", range(FRESH))
def test_seeds_that_no_earlier_commit_has_tried(number: int) -> None:
    run_seeds(fresh_seeds(number, CHUNK, FRESH))


@pytest.mark.long(amount="5 seeds")
@pytest.mark.parametrize("first", range(0, SEEDS, 5))
def test_seeds(first: int) -> None:
    run_seeds(list(range(first, first + 5)))


def test_members_do_all_that_a_member_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each type of acknowledgement is accepted, records come again, and some are never acknowledged."""
    histories: list[History] = []
    check = ShareWorkload.check

    async def checked(workload: ShareWorkload) -> None:
        histories.append(workload._stage.history)
        await check(workload)

    monkeypatch.setattr(ShareWorkload, "check", checked)
    run_shares(3)
    (history,) = histories
    accepted = {kind for event in history.of(Acknowledged) if event.code == 0 for _, kind in event.types}
    assert accepted >= {1, 2, 3, 4}
    counts = {count for event in history.of(Delivered) for _, _, count in event.ranges}
    assert counts >= {1, 2}
    assert len({event.member for event in history.of(Delivered)}) > 1


def test_a_plan_keeps_the_cluster_and_the_faults_of_the_usual_run() -> None:
    for seed in range(20):
        usual, plan = plan_of(seed), share_plan_of(seed).plan
        assert (plan.layout, plan.quorum, plan.faults) == (usual.layout, usual.quorum, usual.faults)


def test_a_seed_gives_the_same_trace_in_two_processes() -> None:
    program = (
        "from tests.simulation.share_run import run_shares\n"
        "outcome = run_shares(5)\n"
        "print(outcome.digest, outcome.events)\n"
    )
    found = printed_twice(program)
    assert found[0] == found[1]
    assert int(found[0].split()[1]) > 100, "that is a run"
