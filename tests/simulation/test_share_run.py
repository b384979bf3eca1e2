"""The whole cluster with share groups through faults; a failing seed is printed, with the end of its story."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple
from unittest import mock

import pytest

from pykbroker_worlds.history.events import Acknowledged, Delivered, ShareReset
from tests.simulation.cluster_run.plan import plan_of
from tests.simulation.fresh_seeds import ROOT, fresh_seeds, seeds_of_commit
from tests.simulation.invariants.share_groups import ShareKey
from tests.simulation.share_run import run_shares
from tests.simulation.share_run.share_plan import share_plan_of
from tests.simulation.share_run.share_workload import ShareWorkload
from tests.simulation.traces import printed_twice

pytestmark = pytest.mark.slow

#: The number of seeds that no earlier commit has tried, and the number of seeds of a long run.
FRESH, SEEDS = 2, 300
#: seed -> what it found
REGRESSIONS: dict[int, str] = {
    11: "a reset of offsets had the state epoch of the one before it, so the leader of the first one overwrote it",
    323: "a follower did not take a batch that began before its end, although its leader had deleted everything there",
    936074250: "a leader sent acknowledgements after the next one had read the state",
    0: "a timer that fires at the end of a lock rounds its time down, finds nothing to end, and fires again for ever",
    48: "a leader has deleted records before a follower with others there was told what is committed",
}
#: The seeds whose runs show all that members and administrators do. They are regressions, too.
SHOWN = (0, 11)


def run_seeds(seeds: list[int]) -> None:
    for seed in seeds:
        try:
            run_shares(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed} with share groups") from error


def test_one_of_the_seeds_that_found_something() -> None:
    """Each is an ordinary seed after the next change of the product, so a commit tries one of them."""
    others = sorted(REGRESSIONS.keys() - SHOWN)
    run_seeds([others[seeds_of_commit(ROOT) % len(others)]])


@pytest.mark.long(amount="1 seed")
@pytest.mark.parametrize("seed", sorted(REGRESSIONS))
def test_seeds_that_found_something(seed: int) -> None:
    run_seeds([seed])


def test_seeds_that_no_earlier_commit_has_tried() -> None:
    run_seeds(fresh_seeds(0, FRESH))


@pytest.mark.long(amount="5 seeds")
@pytest.mark.parametrize("first", range(0, SEEDS, 5))
def test_seeds(first: int) -> None:
    run_seeds(list(range(first, first + 5)))


class Shown(NamedTuple):
    """The observations of the clients and of the invariants of a run."""

    accepted: set[int]
    counts: set[int]
    members: set[str]
    happened: set[str]


@cache
def shown(seed: int) -> Shown:
    """Run a seed to its good end."""
    found: list[Shown] = []
    check = ShareWorkload.check

    async def noted(workload: ShareWorkload) -> None:
        await check(workload)
        found.append(shown_by(workload))

    with mock.patch.object(ShareWorkload, "check", noted):
        run_seeds([seed])
    return found[0]


def shown_by(workload: ShareWorkload) -> Shown:
    history = workload._stage.history
    happened = {"deleted" if event.offset is None else "altered" for event in history.of(ShareReset)}
    for group in workload._share_plan.groups:
        for place in group.places:
            lives = list(workload._invariants.lives[ShareKey(group.name, place)].values())
            if any(life.final for life in lives[1:]):
                happened.add("read again")
            if group.has_letters and any(life.archived() & life.exhausted for life in lives):
                happened.add("letters")
    return Shown(
        accepted={kind for event in history.of(Acknowledged) if event.code == 0 for _, kind in event.types},
        counts={count for event in history.of(Delivered) for _, _, count in event.ranges},
        members={event.member for event in history.of(Delivered)},
        happened=happened,
    )


def test_members_do_all_that_a_member_can_do() -> None:
    """Each type of acknowledgement is accepted, records come again, and some are never acknowledged."""
    run = shown(SHOWN[0])
    assert run.accepted >= {1, 2, 3, 4}
    assert run.counts >= {1, 2}
    assert len(run.members) > 1


def test_offsets_are_reset_and_records_reach_the_delivery_limit() -> None:
    """Offsets are altered and deleted, members get records again after that, and the limit makes dead letters."""
    happened = set().union(*(shown(seed).happened for seed in SHOWN))
    assert happened == {"deleted", "altered", "read again", "letters"}


def test_a_plan_keeps_the_cluster_and_the_faults_of_the_usual_run() -> None:
    for seed in range(20):
        usual, plan = plan_of(seed), share_plan_of(seed).plan
        assert (plan.layout, plan.quorum, plan.faults) == (usual.layout, usual.quorum, usual.faults)


def test_a_seed_gives_the_same_trace_in_two_processes() -> None:
    program = (
        "from tests.simulation.share_run import run_shares\n"
        "outcome = run_shares(14)\n"
        "print(outcome.digest, outcome.events)\n"
    )
    found = printed_twice(program)
    assert found[0] == found[1]
    assert int(found[0].split()[1]) > 100, "that is a run"
