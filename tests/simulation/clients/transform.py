"""A consume-transform-produce loop: it reads one partition and writes to others, exactly once.

It starts at its group's offsets, however often it is killed. A second loop with the same transactional id is a zombie
whose writes must be refused.
"""

from __future__ import annotations

from pykbroker_worlds.history.events import History, Place
from pykbroker_worlds.simulated.sim_cluster import SimCluster
from tests.simulation.clients.base import QUIET, Trouble
from tests.simulation.clients.producer import Fenced, MustAbort, TransactionalProducer
from tests.simulation.clients.reader import Offsets, Reader


class Transform:
    """One life of the loop."""

    def __init__(
        self,
        cluster: SimCluster,
        history: History,
        name: str,
        *,
        transactional_id: str,
        source: Place,
        targets: list[Place],
        group: str,
        version: int,
        trouble: Trouble = QUIET,
        timeout_ms: int = 5_000,
    ) -> None:
        self.reader = Reader(cluster, history, f"{name} in", source, committed_only=True, trouble=trouble)
        self.offsets = Offsets(cluster, history, f"{name} offsets", trouble)
        self.producer = TransactionalProducer(
            cluster, history, name, transactional_id, version=version, trouble=trouble, timeout_ms=timeout_ms
        )
        self.source = source
        self.targets = targets
        self.group = group

    async def forever(self) -> None:
        """Transform until it is fenced or cancelled."""
        try:
            await self.producer.init()
            await self._start()
            while True:
                records = await self.reader.poll(300, self.producer.random.choice([1, 400, 1 << 20]))
                if records or self.reader.position != self._committed:
                    await self._transform(records)
        except Fenced as error:
            self.producer.note("fenced", str(error))

    async def _start(self) -> None:
        # Only stable offsets: what an earlier life has left open is being decided.
        found = await self.offsets.fetched(self.group, self.source, stable=True)
        self._committed = self.reader.position = max(found.offset, 0)

    async def _transform(self, records: tuple[tuple[int, bytes], ...]) -> None:
        producer, rng = self.producer, self.producer.random
        producer.begin()
        try:
            by_target: dict[Place, list[bytes]] = {}
            for _, value in records:
                by_target.setdefault(rng.choice(self.targets), []).append(value)
            for target, values in sorted(by_target.items()):
                assert producer.transaction is not None
                name = producer.transaction.name.encode()
                await producer.produce(target, [value + b">" + name for value in values])
            await producer.commit_offset(self.group, self.source, self.reader.position)
            if rng.random() < 0.1:
                raise MustAbort("the application changed its mind")
        except MustAbort as error:
            producer.note("must abort", str(error))
            await producer.end(commit=False)
            await self._start()
            return
        await producer.end(commit=True)
        self._committed = self.reader.position
