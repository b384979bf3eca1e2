"""From the metadata image to the live configuration: the dynamic layers of this broker and of all brokers.

A publisher of the loader. It must come before those that act on configuration, so that they see the new values.
"""

from __future__ import annotations

from pykbroker.config.dynamic import DynamicConfigs
from pykbroker.config.live import LiveConfig
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import ConfigResource, MetadataImage


class LiveConfigPublisher:
    def __init__(self, live: LiveConfig, node_id: int) -> None:
        self._live = live
        self._name = str(node_id)

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        configs = new.configs
        self._live.update(
            DynamicConfigs(
                broker=configs.of(ConfigResource.BROKER, self._name), cluster=configs.of(ConfigResource.BROKER, "")
            )
        )
