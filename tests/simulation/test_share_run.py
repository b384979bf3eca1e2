"""The whole cluster with share groups through faults; a failing seed is printed, with the end of its story."""

from __future__ import annotations

import pytest

from tests.simulation.cluster_run.plan import plan_of
from tests.simulation.history.events import Acknowledged, Delivered, History
from tests.simulation.share_run import run_shares
from tests.simulation.share_run.share_plan import share_plan_of
from tests.simulation.share_run.share_workload import ShareWorkload
from tests.simulation.traces import printed_twice

pytestmark = pytest.mark.slow

CHUNK, SEEDS = 3, 300
#: seed -> what it found
REGRESSIONS: dict[int, str] = {
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
