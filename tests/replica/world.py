"""A replica table on a memory disk, with its metadata as records, and a loop that the test moves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, cast

from pykbroker.config.load import load
from pykbroker.config.typed_config import Config
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pykbroker.metrics.registry import Metrics
from pykbroker.replica.isr_updates import AlterPartition, Answered
from pykbroker.replica.partition import Partition
from pykbroker.replica.quota import ReplicationQuotas
from pykbroker.replica.table import ReplicaTable
from pykbroker.runtime import OnEnded, Runtime, when_done
from pykbroker.runtime.client_clock import ClientClock, LoopClock
from pykbroker.runtime.workers import Job, finish
from pykbroker.storage.moves import DirectoryAssignments
from pykbroker.storage.space import DiskSpace
from pykbroker.storage.upkeep import Upkeep
from pykbroker_log.disk import File
from pykbroker_log.log_config import StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_partition import RequestPartitionData, ResponsePartitionData
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.records.batch import build_batch
from pykbroker_wire.stored.metadata import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.coordinator.fakes import Loop, as_loop

NODE = 1
NOW_MS = 1_700_000_000_000


class FakeRuntime:
    def __init__(self, loop: Loop, disk: MemoryDisk) -> None:
        self.loop = as_loop(loop)
        self.client_clock: ClientClock = LoopClock(self.loop)
        self.disk = disk
        self.random = random.Random(1)

    def now_ms(self) -> int:
        return NOW_MS + int(self.loop.time() * 1000)

    def keep(self) -> None:
        pass

    def stopwatch_ms(self) -> float:
        return self.loop.time() * 1000

    def cpu_ms(self) -> float:
        return 0.0

    def run_blocking(self, function: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.loop.create_future()
        try:
            future.set_result(function(*args))
        except Exception as error:  # noqa: BLE001  # any error of a call is its result
            future.set_exception(error)
        return future

    def fsync(self, files: Sequence[File], ended: OnEnded) -> None:
        when_done(self.run_blocking(self.disk.fsync_files, files), ended)

    def beside(self) -> Any:
        raise NotImplementedError

    def run_apart(
        self,
        job: Job[Any],
        *args: object,
        on_progress: Callable[[Any], None] | None = None,
        bytes_per_second: float | None = None,
    ) -> asyncio.Future[Any]:
        return self.run_blocking(lambda: finish(job, self.disk, *args, on_progress=on_progress))


class World:
    """Node 1. `publish` replays records, and `loop.settle()` runs everything that they cause.

    With a `disk` of another world it waits for `replicas.start()`.
    """

    def __init__(
        self,
        directories: int = 1,
        *,
        disk: MemoryDisk | None = None,
        config: dict[str, str] | None = None,
        assignments: DirectoryAssignments | None = None,
    ) -> None:
        self.loop = Loop()
        self.disk = disk or MemoryDisk()
        self.runtime = cast(Runtime, FakeRuntime(self.loop, self.disk))
        self.config = self.config_with(config or {})
        self.metrics = Metrics()
        self.space = DiskSpace(self.runtime)
        self.log_dirs = []
        for number in range(len(disk.list(".")) if disk is not None else directories):
            self.disk.make_dirs(f"d{number}")
            self.log_dirs.append(LogDir.open(self.disk, f"d{number}", directory_id(number), NOW_MS))
        self.failures: list[tuple[LogDir, StorageError]] = []
        #: requests about ISRs that the controller has not answered
        self.isr_requests: list[tuple[RequestPartitionData, Answered]] = []
        self.ask_controller: AlterPartition = lambda topic_id, change, answered: self.isr_requests.append(
            (change, answered)
        )
        self.image: MetadataImage = EMPTY_IMAGE
        #: bytes per second, by configuration key
        self.quota_rates: dict[str, int] = {}
        self.replicas = ReplicaTable(
            self.runtime,
            self.config,
            NODE,
            self.log_dirs,
            self.metrics,
            lambda log_dir, error: self.failures.append((log_dir, error)),
            assignments=assignments,
            space=self.space,
            alter_partition=lambda topic_id, change, answered: self.ask_controller(topic_id, change, answered),
            quotas=ReplicationQuotas(
                self.config, NODE, self.loop.time, self.metrics, lambda key: self.quota_rates.get(key, 1 << 62)
            ),
        )
        if disk is None:
            self.replicas.start()

    def upkeep(self, **config: str) -> Upkeep:
        """Return an upkeep, with a configuration of its own if there are values."""
        chosen = self.config_with({key.replace("_", "."): value for key, value in config.items()})
        return Upkeep(
            self.runtime,
            chosen if config else self.config,
            self.replicas.logs,
            lambda: self.replicas.topic_metrics.bytes_in.value,
        )

    @staticmethod
    def config_with(values: dict[str, str]) -> Config:
        return load(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "1@localhost:9093",
                **values,
            }
        )

    def publish(self, *records: TopLevel) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        old, self.image = self.image, delta.apply(self.image.offset + len(records), 1)
        self.replicas.publish(delta, old, self.image)

    def create(
        self, name: str, partitions: int = 1, replicas: tuple[int, ...] = (NODE,), unique: int = 0, **configs: str
    ) -> Partition:
        self.publish(*topic(name, partitions, replicas, unique, **configs))
        self.loop.settle()
        return self.replicas.get(name, 0)

    def change(self, partition: Partition, **fields: Any) -> None:
        self.publish(PartitionChangeRecord(partition_id=partition.index, topic_id=partition.topic_id, **fields))

    def register(self, *broker_ids: int, epoch: int = 7) -> None:
        """Register live brokers, or, with another epoch, brokers that have restarted."""
        self.publish(
            *(
                RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, incarnation_id=bytes(16), fenced=False)
                for broker_id in broker_ids
            )
        )

    def broker_changes(self, broker_id: int, *, fenced: int = 0, in_controlled_shutdown: int = 0) -> None:
        """A value of 1 sets it, -1 clears it."""
        broker = self.image.brokers[broker_id]
        self.publish(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id,
                broker_epoch=broker.epoch,
                fenced=fenced,
                in_controlled_shutdown=in_controlled_shutdown,
            )
        )

    @property
    def asked_isr(self) -> list[int]:
        """Return the only ISR that the controller was asked for."""
        ((change, _),) = self.isr_requests
        return [state.broker_id for state in change.new_isr_with_epochs]

    def answer_isr(self, code: ErrorCode = ErrorCode.NONE, **fields: Any) -> None:
        """Let the controller answer the oldest request, with the requested values unless `fields` has others."""
        change, answered = self.isr_requests.pop(0)
        told: dict[str, Any] = {
            "partition_index": change.partition_index,
            "error_code": code,
            "leader_id": NODE,
            "leader_epoch": change.leader_epoch,
            "isr": [state.broker_id for state in change.new_isr_with_epochs],
            "partition_epoch": change.partition_epoch + 1,
        }
        answered(ResponsePartitionData(**{**told, **fields}))

    def delete(self, name: str) -> None:
        self.publish(RemoveTopicRecord(topic_id=self.image.topics.by_name[name].id))

    def folders(self, root: str = "d0") -> list[str]:
        return [name for name in self.disk.list(root) if self.disk.is_dir(f"{root}/{name}")]


def directory_id(number: int) -> bytes:
    return b"directory" + number.to_bytes(7, "big")


def topic_id(name: str, unique: int = 0) -> bytes:
    return name.encode().ljust(15, b".")[:15] + bytes([unique])


def topic(name: str, partitions: int, replicas: tuple[int, ...], unique: int = 0, **configs: str) -> list[TopLevel]:
    records: list[TopLevel] = [TopicRecord(name=name, topic_id=topic_id(name, unique))]
    records += [
        ConfigRecord(resource_type=2, resource_name=name, name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    records += [
        PartitionRecord(
            partition_id=index,
            topic_id=topic_id(name, unique),
            replicas=list(replicas),
            isr=list(replicas),
            leader=NODE,
            leader_epoch=0,
            partition_epoch=0,
            directories=[bytes(16)] * len(replicas),
        )
        for index in range(partitions)
    ]
    return records


def batch(*values: bytes, **fields: Any) -> bytearray:
    return bytearray(build_batch([(None, value, (), NOW_MS) for value in values], **fields))
