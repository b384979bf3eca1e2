"""The simulated quorum while its voters are added and removed.

Also checks R13 at every event: at most one of a leader's voter sets is not committed, and each differs from the one
before by at most one voter.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from pykbroker_raft import rpc
from pykbroker_raft.raft_node import Inbound
from pykbroker_raft.ready import Reply
from pykbroker_raft.states import Leader
from pykbroker_raft.voters import ReplicaKey, VoterNode
from pykbroker_wire.errors import ErrorCode
from tests.raft.simulation import CLUSTER, Faults, SimNode, Simulation, require


class ChangingVoters(Simulation):
    """A client sometimes asks the current leader for a change; `done` are the acknowledged ones."""

    def __init__(self, seed: int, voters: int, joiners: int, faults: Faults | None = None) -> None:
        self.is_changing = True
        self.asked: dict[int, str] = {}
        self.done: list[str] = []
        super().__init__(seed, voters=voters, observers=1, faults=faults, joiners=joiners)
        self.at(500, self.change)

    def change(self) -> None:
        self.at(self.chance.randrange(100, 2_000), self.change)
        leaders = [node for node in self.nodes.values() if node.raft is not None and node.raft.is_leader]
        if not self.is_changing or not leaders:
            return
        node = self.chance.choice(leaders)
        assert node.raft is not None
        inside = list(node.raft.voters)
        outside = [
            VoterNode(ReplicaKey(other.id, other.config.directory_id), other.config.endpoints)
            for other in self.nodes.values()
            if other.config.is_controller and node.raft.voters.get(other.id) is None
        ]
        if outside and self.chance.random() < 0.5:
            joins = self.chance.choice(outside)
            at_once = self.chance.random() < 0.5
            self.ask(
                node, rpc.add_voter_request(CLUSTER, joins, 1000, ack_when_committed=not at_once), f"+{joins.key.id}"
            )
        else:
            leaves = self.chance.choice(inside)
            self.ask(node, rpc.remove_voter_request(CLUSTER, leaves.key), f"-{leaves.key.id}")

    def ask(self, node: SimNode, request: Any, name: str) -> None:
        token = next(self._order)
        self.asked[token] = name
        inbound = Inbound(token, request, type(request).MAX_VERSION, "CONTROLLER")
        self.give(node, node.life, lambda raft: raft.receive(inbound, self.now))

    def reply(self, source: SimNode, reply: Reply) -> None:
        name = self.asked.pop(reply.token, None)
        if name is None:
            return super().reply(source, reply)
        if reply.response.error_code == ErrorCode.NONE:
            self.done.append(name)
            self.trace.append(f"{self.now_ms} {name}")

    def check(self, node: SimNode) -> None:
        super().check(node)
        raft = node.raft
        if raft is None or not isinstance(raft.state, Leader):
            return
        sets = raft.history.sets
        committed = raft.state.high_watermark
        if committed is not None:
            open_sets = [offset for offset in sets.offsets if offset >= committed]
            require(
                len(open_sets) <= 1, "R13", f"leader {node.id} has voter sets at {open_sets}, committed {committed}"
            )
        for before, after in pairwise(sets.values):
            different = {voter.key for voter in before} ^ {voter.key for voter in after}
            require(len(different) <= 1, "R13", f"voters {before} became {after}")

    def finish(self) -> None:
        self.is_changing = False
        super().finish()
        for node in self.nodes.values():
            raft = node.raft
            assert raft is not None
            require(not raft.is_leader or raft.is_voter, "R13", f"node {node.id} leads and is no voter")
