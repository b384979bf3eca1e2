"""The rules between min.insync.replicas and the eligible leader replicas (ELR, KIP-966).

A replica in the ELR has all committed records, as long as nothing is committed below min.insync.replicas. A smaller
minimum makes the ELR wrong. For example, leader 1 commits records alone and dies. Then replica 2 of the ELR would be
elected without these records. So each change of the minimum empties the ELR of the topics that it may affect. While the
feature is finalised, all brokers have the same minimum, which is set for the cluster or for a topic.

Not responsible for the changes of an ELR (partition_change.py), nor for a new cluster's first records (active.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykbroker.controller.state import ControllerState
from pykbroker.metadata.image import ConfigResource
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import ClearElrRecord, ConfigRecord

MIN_ISR = "min.insync.replicas"


def cluster_min_isr(state: ControllerState) -> ConfigRecord:
    """Return the record that makes the minimum in this node's properties file the minimum of the cluster."""
    value = str(state.config.int(MIN_ISR))
    return ConfigRecord(resource_type=ConfigResource.BROKER, resource_name="", name=MIN_ISR, value=value)


def forbidden_change(
    state: ControllerState, resource_type: int, name: str, changed: Mapping[str, str | None]
) -> str | None:
    """Return why a change of configuration is not allowed while the ELR is in use, or None. A value of None removes the
    key."""
    if resource_type != ConfigResource.BROKER or MIN_ISR not in changed or not state.image.features.elr_enabled:
        return None
    if name:
        return f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
    if changed[MIN_ISR] is None:
        return f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."
    return None


def clear_records(state: ControllerState, records: Iterable[TopLevel]) -> list[TopLevel]:
    """Return the records that empty the ELRs (of a topic, or of all topics) that the changes of configuration in
    `records` make wrong."""
    if not state.image.features.elr_enabled:
        return []
    return [
        ClearElrRecord(topic_name=record.resource_name if record.resource_type == ConfigResource.TOPIC else "")
        for record in records
        if isinstance(record, ConfigRecord) and record.name == MIN_ISR
    ]


def records_before_enabling(state: ControllerState) -> list[TopLevel]:
    """Return the records that make the minimum the same on all brokers, before the feature is finalised."""
    configs = state.image.configs
    records: list[TopLevel] = []
    if MIN_ISR not in configs.of(ConfigResource.BROKER, ""):
        records.append(cluster_min_isr(state))
    records.extend(
        ConfigRecord(resource_type=resource_type, resource_name=name, name=MIN_ISR, value=None)
        for (resource_type, name), values in configs.by_resource.items()
        if resource_type == ConfigResource.BROKER and name and MIN_ISR in values
    )
    if not state.image.features.elr_enabled and any(partition.elr for _, _, partition in state.partitions()):
        # The minimum may have changed while the feature was off, and then an ELR from before may be wrong. Apache Kafka
        # keeps it.
        records.append(ClearElrRecord(topic_name=""))
    return records
