"""Kafka in the tests of other projects: `Broker` is one node in this process, `SecureBroker` is a node whose clients
must authenticate, and `Cluster` and `SecureCluster` have several nodes. `ExistingCluster` is a cluster that runs
already, and `PykbrokerContainer` runs the image with testcontainers. There are fixtures for pytest.

`from pykbroker.testing import Broker, Cluster`. A name is imported only when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykbroker.config.kinds import ConfigError
    from pykbroker.testing.clock import Clock, ClockError
    from pykbroker.testing.cluster import Cluster
    from pykbroker.testing.embedded import Broker
    from pykbroker.testing.existing_cluster import ExistingCluster, NotInThisProcess
    from pykbroker.testing.faults.fault_rule import FaultError, FaultRule, SeenRequest
    from pykbroker.testing.faults.rule_set import Fault, Faults
    from pykbroker.testing.groups import Groups, InspectedGroup, InspectedMember
    from pykbroker.testing.inspection import (
        InspectedOffset,
        InspectedRecord,
        InspectedTransaction,
    )
    from pykbroker.testing.network import CLIENTS
    from pykbroker.testing.pykbroker_container import PykbrokerContainer
    from pykbroker.testing.saved_state import SavedState
    from pykbroker.testing.secure_broker import SecureBroker
    from pykbroker.testing.secure_cluster import SecureCluster
    from pykbroker.testing.share_deliveries import InspectedDelivery
    from pykbroker.testing.traffic import RecordedRequest
    from pykbroker_wire.errors import ErrorCode, KafkaError

__all__ = [
    "CLIENTS",
    "Broker",
    "Clock",
    "ClockError",
    "Cluster",
    "ConfigError",
    "ErrorCode",
    "ExistingCluster",
    "Fault",
    "FaultError",
    "FaultRule",
    "Faults",
    "Groups",
    "InspectedDelivery",
    "InspectedGroup",
    "InspectedMember",
    "InspectedOffset",
    "InspectedRecord",
    "InspectedTransaction",
    "KafkaError",
    "NotInThisProcess",
    "PykbrokerContainer",
    "RecordedRequest",
    "SavedState",
    "SecureBroker",
    "SecureCluster",
    "SeenRequest",
]

#: The module of each name. A test compares it with the imports above.
_HOMES = {
    "CLIENTS": "pykbroker.testing.network",
    "Broker": "pykbroker.testing.embedded",
    "Clock": "pykbroker.testing.clock",
    "ClockError": "pykbroker.testing.clock",
    "Cluster": "pykbroker.testing.cluster",
    "ConfigError": "pykbroker.config.kinds",
    "ErrorCode": "pykbroker_wire.errors",
    "ExistingCluster": "pykbroker.testing.existing_cluster",
    "Fault": "pykbroker.testing.faults.rule_set",
    "FaultError": "pykbroker.testing.faults.fault_rule",
    "FaultRule": "pykbroker.testing.faults.fault_rule",
    "Faults": "pykbroker.testing.faults.rule_set",
    "Groups": "pykbroker.testing.groups",
    "InspectedDelivery": "pykbroker.testing.share_deliveries",
    "InspectedGroup": "pykbroker.testing.groups",
    "InspectedMember": "pykbroker.testing.groups",
    "InspectedOffset": "pykbroker.testing.inspection",
    "InspectedRecord": "pykbroker.testing.inspection",
    "InspectedTransaction": "pykbroker.testing.inspection",
    "KafkaError": "pykbroker_wire.errors",
    "NotInThisProcess": "pykbroker.testing.existing_cluster",
    "PykbrokerContainer": "pykbroker.testing.pykbroker_container",
    "RecordedRequest": "pykbroker.testing.traffic",
    "SavedState": "pykbroker.testing.saved_state",
    "SecureBroker": "pykbroker.testing.secure_broker",
    "SecureCluster": "pykbroker.testing.secure_cluster",
    "SeenRequest": "pykbroker.testing.faults.fault_rule",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        from pykbroker.extras import how_to_install, is_of_extra

        if name != "PykbrokerContainer" or not is_of_extra(error.name, "testcontainers"):
            raise
        raise ImportError(f"PykbrokerContainer needs testcontainers: {how_to_install('testcontainers')}") from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
