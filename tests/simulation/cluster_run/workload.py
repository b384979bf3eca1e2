"""The clients of a run, and the checks of what they did and saw.

Responsible for creating the clients of a plan, for running them until faults are over and their last request is
answered, and for calling the checks of the history. Not responsible for faults, nor for the cluster's coming to rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from pykbroker_worlds.history.checks import insist, of_groups, of_offsets, of_transactions
from pykbroker_worlds.history.events import OK, History, Log, Place, Produced, Read
from tests.simulation.clients.admin import Admin
from tests.simulation.clients.base import GROUP, TRANSACTION, Trouble
from tests.simulation.clients.member import ClassicMember, ConsumerMember, Member
from tests.simulation.clients.plain import PlainProducer
from tests.simulation.clients.producer import Fenced, TransactionalProducer
from tests.simulation.clients.reader import Offsets, Reader
from tests.simulation.cluster_run.plan import Plan
from tests.simulation.stage import Stage
from tests.simulation.transactions import set_version

TOPIC = "orders"
REPLICAS = 3
PLACES: list[Place] = [(TOPIC, index) for index in range(2)]
TRANSACTION_TIMEOUT_MS = 6_000
#: groups without members
_WATCHED = ["plain offsets", "t0", "t1"]


class Workload:
    """Call `prepare`, `run`, then `finish` when the cluster is at rest."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self._plan = plan
        self._stage = stage
        self._is_over = False
        self._over = asyncio.Event()
        #: set when every client has ended what it began
        self.ended = asyncio.Event()
        self._members: list[tuple[Member, asyncio.Future[None]]] = []
        self._admin: Admin | None = None
        self._producers: list[PlainProducer] = []

    async def prepare(self) -> None:
        """Create what must exist before the first fault."""
        plan, stage = self._plan, self._stage
        admin = stage.peer("first")
        await admin.create_topic(TOPIC, len(PLACES), REPLICAS)
        if plan.transaction_version == 1 and "transactions" in plan.clients:
            await set_version(stage, 1)
        if plan.leaves_one_dead or stage.random.random() < 0.5:
            # Internal topics cannot be created while one of three brokers is dead.
            await admin.coordinator(GROUP, "any")
            await admin.coordinator(TRANSACTION, "any")

    def end(self) -> None:
        """Let clients begin nothing more."""
        self._is_over = True
        self._over.set()

    async def run(self) -> None:
        """Run until `end` was called and every client has ended what it began."""
        plan, stage = self._plan, self._stage
        clients = plan.clients
        for place in PLACES:
            for committed in (True, False) if "transactions" in clients else (stage.random.random() < 0.5,):
                reader = Reader(
                    stage.cluster,
                    stage.history,
                    f"reader {place[1]} {committed}",
                    place,
                    committed_only=committed,
                    trouble=plan.trouble,
                )
                stage.in_background(reader.forever(plan.pause))
        work = []
        if "idempotent" in clients:
            work.append(self._produce("idempotent", PLACES[0], idempotent=True, in_flight=3))
            work.append(self._produce("idempotent", PLACES[1], idempotent=True))
        if "plain" in clients:
            work.append(self._produce("plain", stage.random.choice(PLACES), idempotent=False))
        if "acks 1" in clients:
            work.append(self._produce("acks 1", stage.random.choice(PLACES), idempotent=False, acks=1))
        if "transactions" in clients:
            work += [self._transactions(number) for number in range(2)]
        if "classic group" in clients:
            work.append(self._group(ClassicMember))
        if "consumer group" in clients:
            work.append(self._group(ConsumerMember))
        if "admin" in clients:
            self._admin = Admin(stage.cluster, stage.history, "admin", PLACES, REPLICAS)
            work.append(self._admin.run(lambda: self._is_over, 4 * plan.pause))
        if "offsets" in clients:
            watcher = Offsets(stage.cluster, stage.history, "watcher")
            stage.in_background(watcher.watch(_WATCHED, [PLACES[0]], 2 * plan.pause))
            work.append(self._commit())
        await stage.together(*work)
        self.ended.set()

    # -- clients ------------------------------------------------------------------------------------------------------

    async def _produce(self, name: str, place: Place, *, idempotent: bool, acks: int = -1, in_flight: int = 1) -> None:
        producer = PlainProducer(
            self._stage.cluster,
            self._stage.history,
            f"{name} {place[1]}",
            place,
            idempotent=idempotent,
            acks=acks,
            in_flight=in_flight,
            trouble=self._plan.trouble,
        )
        self._producers.append(producer)
        await producer.run(lambda: self._is_over, self._plan.pause)

    async def _transactions(self, number: int) -> None:
        """Lives of an application: some take the transactional id of the other one."""
        plan, stage = self._plan, self._stage
        life = 0
        while not self._is_over:
            life += 1
            trouble = plan.trouble
            if plan.transaction_version == 1:
                # A late EndTxn may end the next transaction of the same epoch, which version 2 prevents.
                trouble = Trouble(lost_answer=trouble.lost_answer)
            producer = TransactionalProducer(
                stage.cluster,
                stage.history,
                f"tx{number}.{life}",
                f"t{number if stage.random.random() < 0.8 else 1 - number}",
                version=plan.transaction_version,
                timeout_ms=TRANSACTION_TIMEOUT_MS,
                trouble=trouble,
            )
            try:
                await producer.init()
                while not self._is_over:
                    await producer.one(PLACES, [producer.transactional_id])
                    await producer.pause(0.0, plan.pause)
            except Fenced as error:
                producer.note("fenced", str(error))
                await producer.pause(0.0, 1.0)

    async def _group(self, kind: type[Member]) -> None:
        """Run two or three members; one of them comes late, one may leave."""
        plan, stage = self._plan, self._stage
        rng = stage.random

        def come(number: int) -> None:
            member = kind(
                stage.cluster,
                stage.history,
                f"{kind.__name__} {number}",
                kind.__name__,
                PLACES,
                instance=f"instance {number}" if rng.random() < 0.2 else None,
                trouble=plan.trouble,
                pace=2.5,
            )
            self._members.append((member, stage.in_background(member.forever())))

        come(1)
        come(2)
        await asyncio.sleep(rng.uniform(0.0, plan.seconds))
        if rng.random() < 0.5:
            come(3)
        if rng.random() < 0.5:
            member, task = self._members[-2]
            task.cancel()
            await asyncio.wait([task])
            if rng.random() < 0.5 and member.member:
                await member.leave()
        await self._over.wait()

    async def _commit(self) -> None:
        committer = Offsets(self._stage.cluster, self._stage.history, "committer", self._plan.trouble)
        while not self._is_over:
            code = await committer.commit(_WATCHED[0], PLACES[0], self._stage.history.now())
            assert code == OK, code
            await committer.pause(0.0, 2 * self._plan.pause)

    # -- the end ------------------------------------------------------------------------------------------------------

    def groups_are_stable(self) -> bool:
        """Return True if the remaining members share all partitions, each with one owner."""
        left = [member for member, task in self._members if not task.done()]
        groups = sorted({member.group for member in left})
        return all(
            sorted(place for member in left if member.group == group for place in member.owned) == PLACES
            for group in groups
        )

    def describe_groups(self) -> object:
        return [(member.name, member.generation, sorted(member.owned)) for member, task in self._members]

    async def check(self) -> None:
        """Check the history, when the cluster is at rest and clients are stopped."""
        stage, plan = self._stage, self._plan
        if self._admin is not None:
            await self._admin.check()
        watcher = Offsets(stage.cluster, stage.history, "last")
        if "offsets" in plan.clients or "transactions" in plan.clients:
            for group in _WATCHED:
                await watcher.fetched(group, PLACES[0])
        logs, stable = await stage.logs(PLACES)
        insist(
            *of_transactions(
                stage.history, logs, stable, epochs_rise=plan.transaction_version == 2, has_followers=True
            ),
            *of_groups(stage.history),
            *of_offsets(stage.history),
            # The history does not contain requests that the network repeats.
            *([plain_writes_were_tried(stage.history, logs)] if not plan.trouble.late_repetition else []),
            nothing_read_is_gone(stage.history),
        )


def plain_writes_were_tried(history: History, logs: Mapping[Place, Log]) -> Iterator[str]:
    """A value is in the log no more often than it was sent."""
    tried: dict[bytes, int] = {}
    for event in history.of(Produced):
        for value in event.values:
            tried[value] = tried.get(value, 0) + 1
    for place, log in logs.items():
        found: dict[bytes, int] = {}
        for batch in log:
            for value in batch.values:
                found[value] = found.get(value, 0) + 1
        for value, count in found.items():
            if count > tried.get(value, 0):
                yield f"{place}: {value!r} stands {count} times and was sent {tried.get(value, 0)} times"


def nothing_read_is_gone(history: History) -> Iterator[str]:
    """P8: a position up to which a reader has read is never out of range."""
    for event in history.of(Read):
        if event.code != OK:
            yield f"{event.client}: {event.place}: position {event.position} was read, and is out of range"
