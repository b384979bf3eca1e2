"""A client that deletes the first records of a partition now and then, as a pipeline does with what it has used."""

from __future__ import annotations

from collections.abc import Callable

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker_worlds.history.events import History, Place
from pykbroker_worlds.simulated.sim_cluster import SimCluster
from tests.simulation.clients.base import MOVED, Peer


class Trimmer(Peer):
    """Deletes records of one partition."""

    def __init__(self, cluster: SimCluster, history: History, name: str, place: Place) -> None:
        super().__init__(cluster, history, name)
        self.place = place

    async def run(self, is_over: Callable[[], bool], written: Callable[[], int]) -> None:
        """Delete until it is over. `written` returns how many records the partition has at least."""
        topic, index = self.place
        while not is_over():
            await self.pause(0.5, 3.0)
            offset = self.random.randint(0, written())
            asked = DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)]
            )
            request = DeleteRecordsRequest(topics=[asked], timeout_ms=2_000)
            answer = await self.once(await self.leader(self.place), request)
            code = None if answer is None else answer.topics[0].partitions[0].error_code
            self.note("deleted before", offset, code)
            if code is None or code in MOVED:
                self.lost_leader(self.place)
            else:
                assert code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE), ErrorCode(code)
