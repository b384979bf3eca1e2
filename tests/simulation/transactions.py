"""Scenarios of transactions: producers and zombies, readers of both kinds, offsets, a transforming loop, and faults."""

from __future__ import annotations

import asyncio

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pykbroker_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from pykbroker_wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from pykbroker_worlds.history.checks import insist, of_offsets, of_transactions
from pykbroker_worlds.history.events import Place, Read
from pykbroker_worlds.history.isolation import reads_are_exact
from pykbroker_worlds.history.offsets import each_input_once
from pykbroker_worlds.history.writes import ends_in_time, nothing_hangs
from pykbroker_worlds.simulated.sim_cluster import Quorum
from tests.simulation.clients.base import QUIET, Trouble
from tests.simulation.clients.producer import Fenced, MustAbort, TransactionalProducer
from tests.simulation.clients.reader import Offsets, Reader
from tests.simulation.clients.transform import Transform
from tests.simulation.stage import COMPACTED, Stage, play

TOPIC = "orders"
PLACES: list[Place] = [(TOPIC, index) for index in range(3)]
IDS = ["t0", "t1"]
#: a group for each transactional id and one for plain commits, whose offsets only rise; and one for all
MIXED = "mixed"
PLAIN = "plain"
#: After this time nothing of a killed client is open: its timeout, the coordinator's interval, and some tries.
SETTLE_SECONDS = 12.0


def trouble_of(stage: Stage, version: int) -> Trouble:
    """A late EndTxn of version 1 may end the next transaction of the same epoch, which version 2 prevents."""
    chosen = stage.random.choice([QUIET, Trouble(lost_answer=0.05), Trouble(lost_answer=0.03, late_repetition=0.05)])
    return chosen if version == 2 else Trouble(lost_answer=chosen.lost_answer)


async def set_version(stage: Stage, level: int) -> None:
    """Set transaction.version while everything runs."""
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=2)
    peer = stage.peer(f"admin of {level}")
    answer = await peer.anybody(UpdateFeaturesRequest(feature_updates=[update], timeout_ms=30_000))
    assert answer.error_code == ErrorCode.NONE, answer


async def producers(stage: Stage, version: int, *, power_loss: bool = False, full: bool = False) -> None:
    """Producers with few transactional ids, so that some fence others; some are killed in the middle."""
    rng = stage.random
    trouble = trouble_of(stage, version)
    if version == 1:
        await set_version(stage, 1)
    await stage.peer("admin").create_topic(TOPIC, len(PLACES))
    for place in PLACES:
        for committed in (True, False):
            name = f"reader {place[1]} {committed}"
            reader = Reader(
                stage.cluster,
                stage.history,
                name,
                place,
                committed_only=committed,
                trouble=Trouble(trouble.lost_answer),
            )
            if not power_loss:
                stage.in_background(reader.forever())
    offset_places = [PLACES[0]]
    watcher = Offsets(stage.cluster, stage.history, "watcher")
    stage.in_background(watcher.watch([*IDS, PLAIN, MIXED], offset_places))
    if not power_loss:
        stage.in_background(stage.look_now_and_then())

    async def career(number: int) -> None:
        """Run several lives of an application; each begins with the transactional id of an earlier one."""
        for life in range(rng.randint(1, 4)):
            producer = TransactionalProducer(
                stage.cluster,
                stage.history,
                f"p{number}.{life}",
                rng.choice(IDS),
                version=version,
                timeout_ms=rng.choice([1_500, 4_000]),
                trouble=trouble,
            )
            task = asyncio.ensure_future(_live(producer, rng.randint(1, 8)))
            done, _ = await asyncio.wait([task], timeout=rng.choice([0.5, 2.0, 1_000.0]))
            if not done and rng.random() < 0.5:
                # It continues, as a zombie, when the next life has begun.
                stage.in_background(_end_of(task))
            else:
                task.cancel()
                await _end_of(task)

    plain = [Offsets(stage.cluster, stage.history, f"commits {group}") for group in (PLAIN, MIXED)]
    faults = [stage.crashes(rng.randint(0, 4), power_loss=power_loss)]
    if full:
        faults.append(stage.full_disks(rng.randint(1, 4)))
    await stage.together(
        *(career(number) for number in range(3)),
        plain[0].commit_now_and_then(PLAIN, PLACES[0], 8),
        plain[1].commit_now_and_then(MIXED, PLACES[0], 8),
        *faults,
    )
    await stage.cluster.become_whole()
    await settle(stage)
    if power_loss:
        await end_hanging(stage, [*PLACES, *(("__consumer_offsets", index) for index in range(2))])
    logs, stable = await stage.logs(PLACES)
    for group in (*IDS, PLAIN, MIXED):
        await watcher.fetched(group, PLACES[0])
    if power_loss:
        # Acknowledged records may be gone; the records that are there are whole, and can be read.
        ended = stage.history.without_before("last orders-0 True")
        insist(
            nothing_hangs(logs, stable),
            reads_are_exact(ended, logs),
        )
    else:
        insist(
            *of_transactions(stage.history, logs, stable, epochs_rise=version == 2),
            *of_offsets(stage.history, mixed=MIXED),
            # Their timeout, and the time that four restarts may take.
            ends_in_time(logs, limit_ms=4_000 + 16_000),
        )


async def _live(producer: TransactionalProducer, transactions: int) -> None:
    try:
        await producer.run(transactions, PLACES, [producer.transactional_id, MIXED])
    except Fenced as error:
        producer.note("fenced", str(error))


async def _end_of(task: asyncio.Future[None]) -> None:
    try:
        await task
    except asyncio.CancelledError:
        task.cancel()
        if not task.cancelled() and not task.done():
            raise


async def settle(stage: Stage) -> None:
    """Clients stop in the middle of their work; their open transactions are aborted."""
    await stage.hush()
    await asyncio.sleep(SETTLE_SECONDS)
    stage.agree()


async def end_hanging(stage: Stage, places: list[Place]) -> None:
    """Do what `kafka-transactions find-hanging` and `abort` do: a power loss may have removed a transaction from its
    coordinator and left it in a log."""
    admin = stage.peer("kafka-transactions")
    for topic, index in places:
        place = topic, index
        asked = [TopicRequest(name=topic, partition_indexes=[index])]
        answer = await admin.once(await admin.leader(place), DescribeProducersRequest(topics=asked))
        found = answer.topics[0].partitions[0]
        assert found.error_code == ErrorCode.NONE, ErrorCode(found.error_code)
        for producer in found.active_producers:
            if producer.current_txn_start_offset < 0:
                continue
            marker = WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
                coordinator_epoch=max(producer.coordinator_epoch, 0),
            )
            written = await admin.once(await admin.leader(place), WriteTxnMarkersRequest(markers=[marker]))
            code = written.markers[0].topics[0].partitions[0].error_code
            admin.note("ended", place, code)
            assert code == ErrorCode.NONE, ErrorCode(code)


async def transform(stage: Stage, version: int) -> None:
    """An input that is written in transactions, and a loop that is killed, restarted and doubled."""
    rng = stage.random
    trouble = trouble_of(stage, version)
    if version == 1:
        await set_version(stage, 1)
    source: Place = ("in", 0)
    targets: list[Place] = [("out", index) for index in range(3)]
    admin = stage.peer("admin")
    await admin.create_topic("in", 1)
    await admin.create_topic("out", len(targets))
    stage.in_background(stage.look_now_and_then())
    feeder = TransactionalProducer(stage.cluster, stage.history, "feeder", "feeder", version=version, trouble=trouble)
    for target in targets:
        reader = Reader(stage.cluster, stage.history, f"reader {target[1]}", target, committed_only=True)
        stage.in_background(reader.forever())

    def loop(number: int) -> Transform:
        return Transform(
            stage.cluster,
            stage.history,
            f"loop {number}",
            transactional_id="loop",
            source=source,
            targets=targets,
            group="g",
            version=version,
            trouble=trouble,
            timeout_ms=rng.choice([1_500, 4_000]),
        )

    async def lives() -> None:
        for number in range(rng.randint(2, 5)):
            task = stage.in_background(loop(number).forever())
            await asyncio.wait([task], timeout=rng.uniform(0.2, 3.0))
            if rng.random() < 0.6:
                task.cancel()

    async def feed() -> None:
        for _ in range(6):
            try:
                await feeder.run(2, [source], [])
            except Fenced as error:
                # Its transaction was open for too long.
                feeder.note("fenced", str(error))

    await stage.together(feed(), lives(), stage.crashes(rng.randint(0, 4)))
    # One more life, which does the rest.
    last = loop(1_000)
    stage.in_background(last.forever())
    end = Reader(stage.cluster, stage.history, "end", source, committed_only=True)
    await end.read_all()
    watcher = Offsets(stage.cluster, stage.history, "watcher")
    while (await watcher.fetched("g", source)).offset < end.last_stable_offset:
        await watcher.pause(0.2, 0.5)
    await settle(stage)
    logs, stable = await stage.logs([source, *targets])
    # There is no zombie feeder, so the loop had to read exactly what the feeder's transactions committed.
    inputs = [value for event in stage.history.events for value in _read_by(event, "last in-0 True")]
    insist(
        *of_transactions(stage.history, logs, stable, epochs_rise=version == 2),
        *of_offsets(stage.history),
        each_input_once(inputs, {place: logs[place] for place in targets}),
    )


def _read_by(event: object, client: str) -> list[bytes]:
    if isinstance(event, Read) and event.client == client:
        return [value for _, value in event.records]
    return []


async def duel(stage: Stage, version: int) -> None:
    """Applications take one transactional id from each other as fast as they can. One is fenced while its first batches
    are being verified, and its markers are written at the same time (KIP-890)."""
    rng = stage.random
    if version == 1:
        await set_version(stage, 1)
    await stage.peer("admin").create_topic(TOPIC, len(PLACES))

    async def fight(number: int) -> None:
        for life in range(12):
            producer = TransactionalProducer(
                stage.cluster,
                stage.history,
                f"p{number}.{life}",
                "disputed",
                version=version,
                trouble=Trouble(lost_answer=0.02),
            )
            try:
                await producer.init()
                for _ in range(rng.randint(1, 3)):
                    producer.begin()
                    try:
                        for place in rng.sample(PLACES, 2):
                            await producer.produce(place, producer.values(1))
                        if rng.random() < 0.3:
                            await producer.commit_offset("g", PLACES[0], producer.next_offset())
                    except MustAbort:
                        await producer.end(commit=False)
                    else:
                        await producer.end(commit=rng.random() < 0.8)
            except Fenced as error:
                producer.note("fenced", str(error))
            await asyncio.sleep(rng.uniform(0.0, 0.02))

    await stage.together(*(fight(number) for number in range(4)))
    await settle(stage)
    logs, stable = await stage.logs(PLACES)
    await Offsets(stage.cluster, stage.history, "watcher").fetched("g", PLACES[0])
    insist(
        *of_transactions(stage.history, logs, stable, epochs_rise=version == 2),
        *of_offsets(stage.history),
        # Their timeout, and half a second between two checks of the coordinator.
        ends_in_time(logs, limit_ms=5_000 + 1_000),
    )


def run_duel(seed: int, *, version: int = 2, brokers: int = 2) -> Stage:
    stage = Stage(seed, brokers)
    play(lambda stage: duel(stage, version), stage)
    return stage


def run_producers(
    seed: int,
    *,
    version: int = 2,
    brokers: int = 1,
    power_loss: bool = False,
    full: bool = False,
    quorum: Quorum = Quorum.ALONE,
) -> Stage:
    # A cleaner that finds a full disk takes its directory offline, and the node with it.
    stage = Stage(seed, brokers, COMPACTED if seed % 3 == 0 and not full else None, quorum)
    play(lambda stage: producers(stage, version, power_loss=power_loss, full=full), stage)
    return stage


def run_transform(seed: int, *, version: int = 2, brokers: int = 1, quorum: Quorum = Quorum.ALONE) -> Stage:
    stage = Stage(seed, brokers, quorum=quorum)
    play(lambda stage: transform(stage, version), stage)
    return stage


async def together(stage: Stage) -> None:
    """Producers with several batches in flight, and short transactions one after the other, without faults."""
    await stage.peer("admin").create_topic(TOPIC, len(PLACES))

    async def run(name: str) -> None:
        producer = TransactionalProducer(stage.cluster, stage.history, name, name, version=2)
        await producer.init()
        for _ in range(8):
            producer.begin()
            await asyncio.gather(*(producer.produce_together(place, 3) for place in PLACES))
            await producer.end(commit=True)

    await stage.together(*(run(name) for name in IDS))


def run_together(seed: int) -> Stage:
    """On three nodes, so that coordinators and leaders are on different ones."""
    stage = Stage(seed, 3, quorum=Quorum.STATIC)
    play(together, stage)
    return stage
