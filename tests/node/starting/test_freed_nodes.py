"""A node that has stopped is freed. A process may start one node after the other, as tests with `Broker` do."""

from __future__ import annotations

import gc
import weakref

from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from testkit.nodes.share_members import share_members
from testkit.nodes.sim import Sim

ONE = {"share.coordinator.state.topic.num.partitions": "1", "share.coordinator.state.topic.min.isr": "1"}


async def _work(sim: Sim) -> None:
    """Let the node create topics by itself, serve a producer, a consumer and a share group, and stop."""
    for kind in (0, 1):
        await sim.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]))
    group = await share_members(sim)
    await sim.send("t", b"a", b"b")
    assert await group.acquire(0) == {0: [(0, 1, 1)]}
    await sim.fetch("t")
    await sim.node.stop()


def test_a_node_that_has_stopped_is_freed() -> None:
    sim = Sim(ONE)
    sim.run(_work)
    # Its metadata is held by all that goes on.
    metadata = weakref.ref(sim.node.services.metadata)
    sim.close()
    del sim
    gc.collect()
    assert metadata() is None
