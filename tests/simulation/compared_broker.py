"""A simulated broker whose producers are compared, at every restart, with those of its life before (T9)."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker_log.memory_disk import Survive
from pykbroker_worlds.simulated.sim_broker import SimBroker
from pykbroker_worlds.simulated.sim_node import recovered
from pykbroker_worlds.simulated.world import SimWorld
from tests.simulation.rebuilt import Producers, compare_producers, fresh_producers_agree, producers_of


class ComparedBroker(SimBroker):
    """Raises AssertionError at the end of a start that rebuilt the producers of a log in another way."""

    def __init__(self, world: SimWorld, number: int, properties: Mapping[str, str]) -> None:
        super().__init__(world, number, properties)
        #: the state of each log's producers when the process died: (entries, log end)
        self._knew: dict[tuple[str, int], tuple[Producers, int]] = {}

    def is_killed(self, survive: Survive) -> None:
        if survive is not Survive.EVERYTHING or not self.up:
            self._knew.clear()
            return
        for partition in self.led():
            log = partition.log_if_open
            if log is not None:
                self._knew[partition.topic, partition.index] = producers_of(log), log.log_end_offset

    def will_stop(self) -> None:
        self._knew.clear()

    async def has_started(self) -> None:
        for partition in self.led():
            log = await recovered(partition)
            fresh_producers_agree(log)
            knew = self._knew.get((partition.topic, partition.index))
            if knew is not None and knew[1] == log.log_end_offset:
                compare_producers(str(partition), knew[0], producers_of(log))
