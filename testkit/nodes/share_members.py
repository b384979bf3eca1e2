"""Members of a share group that fetch and acknowledge, as clients of a node in the simulated world."""

from __future__ import annotations

from functools import partial
from typing import Any

from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker_wire.errors import ErrorCode
from testkit.nodes.sim import Sim
from testkit.promises import results
from testkit.share_requests import GROUP, acquired, outcomes, share_acknowledges, share_fetches
from testkit.simulated_clients import Client

#: the type of a resource in requests about configurations
GROUP_CONFIG = 32


class ShareMembers:
    """A share group for one topic, and the requests of its members."""

    def __init__(self, sim: Sim, topic_id: bytes) -> None:
        self.sim = sim
        self.topic_id = topic_id
        self.fetches = partial(share_fetches, topic_id)
        self.acknowledges = partial(share_acknowledges, topic_id)

    async def fetch(self, *indexes: int, epoch: int = 0, client: Client | None = None, **fields: Any) -> Any:
        request = self.fetches(*indexes, epoch=epoch, **{"max_wait_ms": 1_000, **fields})
        return await (client or self.sim).call(request)

    async def acquire(self, *indexes: int, epoch: int = 0, client: Client | None = None, **fields: Any) -> Any:
        return acquired(await self.fetch(*indexes, epoch=epoch, client=client, **fields))

    async def acknowledge(self, acks: Any, epoch: int, client: Client | None = None, **fields: Any) -> Any:
        return outcomes(await (client or self.sim).call(self.acknowledges(acks, epoch=epoch, **fields)))


async def share_members(sim: Sim, partitions: int = 1, start: int = 0, **configs: str) -> ShareMembers:
    """Return a group whose share partitions are initialised, as its coordinator does it. -1: no start offset yet."""
    await sim.create("t", partitions=partitions)
    if configs:
        await sim.alter(
            GROUP_CONFIG, GROUP, {f"share.{key.replace('_', '.')}": value for key, value in configs.items()}
        )
    topic_id = await sim.topic_id("t")
    persister = sim.node.broker.shares.persister
    asked = [persister.initialize(SharePartitionKey(GROUP, topic_id, each), 1, start) for each in range(partitions)]
    assert {answer.error for answer in await results(asked, 60)} == {ErrorCode.NONE}
    return ShareMembers(sim, topic_id)
