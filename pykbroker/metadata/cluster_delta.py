"""The changes of registered brokers and controllers between two images, as Apache Kafka's ClusterDelta.

Not responsible for any other record (delta.py).

Invariant: a record about a broker that is not registered, or that names another epoch, changes nothing and raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from pykbroker.metadata.image import BrokerImage, ControllerImage, Endpoint, VersionRange
from pykbroker.metadata.replay_error import MetadataReplayError
from pykbroker_wire.stored.metadata import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)


class ClusterDelta:
    """The changes since an image with these brokers and controllers. None stands for a node that was unregistered."""

    __slots__ = ("_brokers", "_controllers", "brokers_changed", "controllers_changed")

    def __init__(self, brokers: Mapping[int, BrokerImage], controllers: Mapping[int, ControllerImage]) -> None:
        self._brokers = brokers
        self._controllers = controllers
        self.brokers_changed: dict[int, BrokerImage | None] = {}
        self.controllers_changed: dict[int, ControllerImage | None] = {}

    def __bool__(self) -> bool:
        return bool(self.brokers_changed or self.controllers_changed)

    def broker(self, broker_id: int) -> BrokerImage | None:
        """Return a broker after the records so far, None if it is not registered."""
        if broker_id in self.brokers_changed:
            return self.brokers_changed[broker_id]
        return self._brokers.get(broker_id)

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers_changed[record.broker_id] = BrokerImage(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints={e.name: Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points},
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(sorted(record.log_dirs)),
            features={f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in record.features},
            cordoned_directories=tuple(sorted(record.cordoned_log_dirs or ())),
            is_migrating_zk_broker=record.is_migrating_zk_broker,
        )

    def _known_broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker = self.broker(broker_id)
        if broker is None:
            raise MetadataReplayError(f"broker {broker_id} is not registered")
        if broker.epoch != epoch:
            raise MetadataReplayError(f"broker {broker_id} has epoch {broker.epoch}, not {epoch}")
        return broker

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._known_broker(record.broker_id, record.broker_epoch)
        self.brokers_changed[record.broker_id] = None

    def _fence_broker(self, record: FenceBrokerRecord) -> None:
        self.brokers_changed[record.id] = replace(self._known_broker(record.id, record.epoch), fenced=True)

    def _unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self.brokers_changed[record.id] = replace(self._known_broker(record.id, record.epoch), fenced=False)

    def _broker_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._known_broker(record.broker_id, record.broker_epoch)
        changes: dict[str, Any] = {}
        if record.fenced:
            # 1 fences, -1 unfences.
            changes["fenced"] = record.fenced == 1
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = True
        if record.log_dirs:
            changes["directories"] = tuple(sorted(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            changes["cordoned_directories"] = tuple(sorted(record.cordoned_log_dirs))
        self.brokers_changed[record.broker_id] = replace(broker, **changes)

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers_changed[record.controller_id] = ControllerImage(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints={e.name: Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points},
            features={f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in record.features},
            zk_migration_ready=record.zk_migration_ready,
        )

    def _unregister_controller(self, record: UnregisterControllerRecord) -> None:
        controller_id = record.controller_id
        if self.controllers_changed.get(controller_id, self._controllers.get(controller_id)) is None:
            raise MetadataReplayError(f"controller {controller_id} is not registered")
        self.controllers_changed[controller_id] = None


#: The method for each type of record that changes brokers or controllers.
CLUSTER_RECORDS: Final[dict[type, Callable[[ClusterDelta, Any], None]]] = {
    RegisterBrokerRecord: ClusterDelta._register_broker,
    UnregisterBrokerRecord: ClusterDelta._unregister_broker,
    FenceBrokerRecord: ClusterDelta._fence_broker,
    UnfenceBrokerRecord: ClusterDelta._unfence_broker,
    BrokerRegistrationChangeRecord: ClusterDelta._broker_registration_change,
    RegisterControllerRecord: ClusterDelta._register_controller,
    UnregisterControllerRecord: ClusterDelta._unregister_controller,
}
