"""Kafka in the tests of other projects: `Broker` is one node in this process, `SecureBroker` is a node whose clients
must authenticate, and `Cluster` has several nodes. There are fixtures for pytest, and `PykbrokerContainer` runs the
image with testcontainers.

`from pykbroker.testing import Broker, Cluster`. A class is imported only when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykbroker.testing.cluster import Cluster
    from pykbroker.testing.embedded import Broker
    from pykbroker.testing.network import CLIENTS
    from pykbroker.testing.pykbroker_container import PykbrokerContainer
    from pykbroker.testing.secure_broker import SecureBroker

__all__ = ["CLIENTS", "Broker", "Cluster", "PykbrokerContainer", "SecureBroker"]


def __getattr__(name: str) -> Any:
    if name == "Broker":
        from pykbroker.testing.embedded import Broker

        return Broker
    if name == "Cluster":
        from pykbroker.testing.cluster import Cluster

        return Cluster
    if name == "SecureBroker":
        from pykbroker.testing.secure_broker import SecureBroker

        return SecureBroker
    if name == "CLIENTS":
        from pykbroker.testing.network import CLIENTS

        return CLIENTS
    if name == "PykbrokerContainer":
        try:
            from pykbroker.testing.pykbroker_container import PykbrokerContainer
        except ModuleNotFoundError as error:
            from pykbroker.extras import how_to_install, is_of_extra

            if not is_of_extra(error.name, "testcontainers"):
                raise
            raise ImportError(f"PykbrokerContainer needs testcontainers: {how_to_install('testcontainers')}") from error

        return PykbrokerContainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
