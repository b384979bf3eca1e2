"""The quorum under crashes, power loss and a bad network: invariants at every event, liveness at the end."""

from __future__ import annotations

import pytest

from tests.raft.simulation import Faults, SimNode, Simulation
from tests.raft.voter_simulation import ChangingVoters

CALM = Faults(0, 0, 0, 0, 0, 0)
STORMY = Faults(drop=0.1, repeat=0.1, slow=0.15, crash=0.008, partition=0.01, snapshot=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("voters", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_quorum_survives(voters: int, seed: int) -> None:
    run = Simulation(seed * 10 + voters, voters=voters)
    run.run(2000)
    run.finish()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_quorum_survives_a_storm(seed: int) -> None:
    run = Simulation(5000 + seed, voters=3, observers=2, faults=STORMY)
    run.run(5000)
    run.finish()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_quorum_survives_changes_of_its_voters(seed: int) -> None:
    run = ChangingVoters(7000 + seed, voters=1 + seed % 3, joiners=3)
    run.run(5000)
    run.finish()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_quorum_survives_changes_of_its_voters_in_a_storm(seed: int) -> None:
    run = ChangingVoters(8000 + seed, voters=3, joiners=2, faults=STORMY)
    run.run(5000)
    run.finish()


@pytest.mark.slow
def test_calm_quorum_changes_its_voters_again_and_again() -> None:
    run = ChangingVoters(1, voters=3, joiners=2, faults=CALM)
    run.run(8000)
    run.finish()
    assert {change[0] for change in run.done} == {"+", "-"}
    assert len(run.done) > 5


@pytest.mark.slow
def test_calm_quorum_elects_once() -> None:
    run = Simulation(1, voters=3, faults=CALM)
    run.run(6000)
    assert len(run.leaders) == 1
    assert all(node.raft is not None and node.raft.epoch == 1 for node in run.nodes.values())


@pytest.mark.slow
def test_returning_voter_does_not_disturb() -> None:
    """KIP-996: a voter that was cut off uses pre-votes and does not raise the epoch of the others."""
    run = Simulation(2, voters=3, observers=0, faults=CALM)
    assert run.run_until(lambda: len(run.acknowledged) > 10, 20_000)
    leader = next(node for node in run.nodes.values() if node.raft is not None and node.raft.is_leader)
    assert leader.raft is not None
    epoch = leader.raft.epoch
    lonely = next(id for id in run.nodes if id != leader.id)
    run.cut = {(a, b) for a in run.nodes for b in run.nodes if a != b and lonely in (a, b)}
    run.run_until(lambda: False, 10_000)
    run.cut.clear()
    # misfortune() cannot cut again, because all faults are zero.
    run.run_until(lambda: False, 10_000)
    assert leader.raft is not None
    assert leader.raft.is_leader
    assert leader.raft.epoch == epoch
    assert all(node.raft is not None and node.raft.epoch == epoch for node in run.nodes.values())


def test_isolated_leader_steps_down() -> None:
    run = Simulation(3, voters=3, observers=0, faults=CALM)
    assert run.run_until(lambda: len(run.acknowledged) > 10, 20_000)
    leader = next(node for node in run.nodes.values() if node.raft is not None and node.raft.is_leader)
    run.cut = {(a, b) for a in run.nodes for b in run.nodes if a != b and leader.id in (a, b)}
    assert run.run_until(lambda: leader.raft is not None and not leader.raft.is_leader, 6_000)
    run.finish()


def test_leader_gone_for_good() -> None:
    """The others know the leader and name it to each other, but they must still elect a new one."""
    run = Simulation(4, voters=3, observers=1, faults=CALM)
    assert run.run_until(lambda: len(run.acknowledged) > 10, 20_000)
    leader = next(node for node in run.nodes.values() if node.raft is not None and node.raft.is_leader)
    run.crash(leader)

    def elected() -> bool:
        return any(node.raft is not None and node.raft.is_leader for node in run.nodes.values())

    assert run.run_until(elected, 2 * (2000 + 2000))
    run.finish()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("voters", [2, 3])
def test_a_resigned_leader_helps_to_elect_the_next_one(voters: int, restarts: bool) -> None:
    """All remaining voters are needed, and one of them is the leader that has resigned or was restarted."""
    run = Simulation(6, voters=voters, observers=0, faults=CALM)
    assert run.run_until(lambda: len(run.acknowledged) > 10, 20_000)

    def leader() -> SimNode | None:
        return next((node for node in run.nodes.values() if node.raft is not None and node.raft.is_leader), None)

    former = leader()
    assert former is not None
    others = [node for node in run.nodes.values() if node is not former]
    for down in others[1:]:
        run.crash(down)
    # Records that the crashed voter had acknowledged are committed, so the remaining voter has them too.
    assert run.run_until(lambda: all(node.disk.end == former.disk.end for node in others[:1]), 1_000)
    if restarts:
        run.crash(former)
        run.start(former)
    else:
        run.give(former, former.life, lambda raft: raft.resign(run.now))
    assert leader() is None
    before_ms = run.now_ms
    assert run.run_until(lambda: leader() is not None, 20_000)
    assert run.now_ms - before_ms < former.config.election_timeout_ms
    run.finish()


@pytest.mark.slow
def test_votes_that_split_do_not_depose_the_leader() -> None:
    """With very short timeouts several voters stand at once: the simulation checks that each loser waits."""
    lost = 0
    for seed in range(6):
        run = Simulation(900 + seed, voters=5, observers=0, faults=CALM, election_timeout_ms=6)
        run.run(400)
        run.finish()
        lost += run.lost_candidacies
    assert lost


@pytest.mark.slow
def test_same_seed_same_run() -> None:
    def trace(seed: int) -> tuple[list[str], int, list[bytes]]:
        run = Simulation(seed, voters=3)
        run.run(2500)
        return run.trace, run.now_ms, run.acknowledged

    assert trace(77) == trace(77)
