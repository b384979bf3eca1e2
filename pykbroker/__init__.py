"""A Kafka broker in Python: Apache Kafka's protocol and file formats.

`with pykbroker.Broker() as broker: broker.bootstrap_servers` runs a node inside this process, in a thread of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykbroker.testing.embedded import Broker

__all__ = ["Broker", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # `Broker` is imported at its first use, so `import pykbroker` alone loads neither asyncio nor other modules.
    if name == "Broker":
        from pykbroker.testing.embedded import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
