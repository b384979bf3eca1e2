"""A controller and brokers in one loop: a quorum of one without a disk, the real loader, the real lifecycle."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol

from pykbroker.client_view.cluster_view import ClusterViews
from pykbroker.config.load import development_profile, load
from pykbroker.config.typed_config import Config
from pykbroker.controller.active import ActiveController
from pykbroker.controller.state import ControllerState
from pykbroker.metadata.features import BOOTSTRAP_LEVELS, ELR_VERSION
from pykbroker.metadata.loader import MetadataLoader
from pykbroker.metadata.restored import Restored
from pykbroker_log.log_config import StorageError
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import FeatureLevelRecord, RegisterBrokerRecord
from pykbroker_wire.stored.metadata.register_broker_record import BrokerEndpoint, BrokerFeature

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def node_config(**overrides: str) -> Config:
    values = development_profile("/nowhere", 0)
    values.update({name.replace("__", "."): text for name, text in overrides.items()})
    return load(values)


class Listener(Protocol):
    def handle_commit(self, base_offset: int, epoch: int, timestamp_ms: int, values: list[bytes]) -> None: ...
    def handle_leader(self, leader_id: int | None, epoch: int) -> None: ...


class FakeQuorum:
    """Commits appended batches in the loop's next turn, or on request."""

    def __init__(self, node_id: int = 1) -> None:
        self.node_id = node_id
        self.epoch = 1
        self.log: list[tuple[int, list[bytes]]] = []
        self.log_end_offset = 1  # 0 is the leader's control record
        self.kraft_version = 1
        self.automatic = True
        self._listeners: list[Listener] = []
        self._told = 0

    def register(self, listener: Listener) -> None:
        self._listeners.append(listener)

    is_short_of_room = False

    def append(self, records: list[bytes]) -> int:
        if self.is_short_of_room:
            raise StorageError("/nowhere", OSError(errno.ENOSPC, "no room"))
        self.log.append((self.log_end_offset, records))
        self.log_end_offset += len(records)
        if self.automatic:
            asyncio.get_running_loop().call_soon(self.commit)
        return self.log_end_offset - 1

    def raise_kraft_version(self, version: int, *, validate_only: bool) -> None:
        if not validate_only:
            self.kraft_version = version

    def commit(self, batches: int | None = None) -> None:
        """Commit all batches, or only the first `batches` of them."""
        end = len(self.log) if batches is None else self._told + batches
        while self._told < end:
            base_offset, values = self.log[self._told]
            self._told += 1
            for listener in self._listeners:
                listener.handle_commit(base_offset, self.epoch, 0, values)

    def lead(self, leader_id: int | None) -> None:
        for listener in self._listeners:
            listener.handle_leader(leader_id, self.epoch)

    def lose_uncommitted(self) -> None:
        """Let another leader take over without the uncommitted batches."""
        del self.log[self._told :]
        self.log_end_offset = 1 + sum(len(values) for _, values in self.log)


@dataclass
class FakeRuntime:
    loop: asyncio.AbstractEventLoop
    random: random.Random = field(default_factory=lambda: random.Random(7))

    def now_ms(self) -> int:
        return 1_700_000_000_000


class DirectChannel:
    """Passes requests to a function, later."""

    def __init__(self, call: Callable[[Any], Any]) -> None:
        self._call = call
        self.sent: list[Any] = []

    def send(self, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        self.sent.append(request)

        async def run() -> Any:
            result = self._call(request)
            return await result if isinstance(result, asyncio.Future) else result

        return asyncio.ensure_future(run())


class World:
    """One controller that leads, a loader, and no broker yet."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = node_config() if config is None else config
        runtime: Any = FakeRuntime(asyncio.get_running_loop())
        self.runtime = runtime
        self.quorum = FakeQuorum()
        self.loader = MetadataLoader()
        self.controller = ActiveController(
            runtime=runtime,
            quorum=self.quorum,
            config=self.config,
            node_id=1,
            cluster_id=CLUSTER_ID,
            bootstrap=[FeatureLevelRecord(name=name, feature_level=level) for name, level in BOOTSTRAP_LEVELS.items()],
        )
        self.quorum.register(self.controller)
        self.quorum.register(self.loader)

    async def lead(self) -> None:
        self.quorum.lead(1)
        await asyncio.sleep(0)

    def close(self) -> None:
        self.controller.stop()

    def services(self) -> Any:
        return SimpleNamespace(
            config=self.config,
            runtime=self.runtime,
            node_id=1,
            cluster_id=CLUSTER_ID,
            metadata=self.loader,
            controller=self.controller,
            broker_watch=None,
            cluster_views=ClusterViews(),
        )


# Pure states, for operations without a loop.


def broker_record(broker_id: int, *, epoch: int, rack: str | None = None, fenced: bool = False) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=bytes(14) + bytes((1, broker_id)),
        broker_epoch=epoch,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9000 + broker_id)],
        features=[
            BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30),
            BrokerFeature(name=ELR_VERSION, min_supported_version=0, max_supported_version=1),
        ],
        rack=rack,
        fenced=fenced,
        log_dirs=[directory_of(broker_id)],
    )


def directory_of(broker_id: int) -> bytes:
    return bytes((0xD0, broker_id)) + bytes(14)


class Pure:
    """A state to which results are applied at once."""

    def __init__(
        self,
        brokers: int = 3,
        config: Config | None = None,
        racks: Iterator[str] | None = None,
        restored: Restored | None = None,
    ) -> None:
        self.state = ControllerState(1, CLUSTER_ID, config or node_config(), random.Random(3), restored=restored)
        self.offset = 0
        self.now_ms = 1_000_000
        self.replay([FeatureLevelRecord(name="metadata.version", feature_level=30)])
        for broker_id in range(brokers):
            rack = None if racks is None else next(racks)
            self.replay([broker_record(broker_id, epoch=self.offset, rack=rack)])

    def replay(self, records: list[TopLevel]) -> None:
        self.state.replay(records, self.offset, 1)
        self.offset += len(records)

    def apply(self, result: Any) -> Any:
        self.replay(list(result.records))
        result.appended()
        return result.response
