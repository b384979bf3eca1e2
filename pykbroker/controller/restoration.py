"""The first records of the controller of a cluster that was put back to an earlier state (`metadata/restored.py`).

They fence the brokers of that state, whose processes have ended. They raise the leader epoch of every partition above
all that clients may have seen, and leave out the producer ids that brokers may have handed out. Not responsible for the
epochs of groups and producers (the coordinators).
"""

from __future__ import annotations

from pykbroker.controller.brokers import FENCE
from pykbroker.controller.state import ControllerState
from pykbroker.metadata.image import NO_LEADER
from pykbroker.metadata.snapshot import partition_record
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import BrokerRegistrationChangeRecord, ProducerIdsRecord


def restoration_records(state: ControllerState) -> list[TopLevel]:
    """Return the records. There are none for a cluster that was not put back, and none if an active controller has
    written them already. The record of the producer ids is the last of them, so it proves that the others are there
    too."""
    image, restored = state.image, state.restored
    if restored is None or image.producer_ids_next >= restored.producer_id:
        return []
    version = state.metadata_version
    records: list[TopLevel] = [
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE)
        for broker in image.brokers.values()
        if state.is_restored(broker) and not broker.fenced
    ]
    for topic in image.topics.by_id.values():
        for index, partition in topic.partitions.items():
            if partition.leader_epoch <= restored.leader_epoch:
                # The ISR stays, because each replica has what it had. The first broker of it that serves will lead.
                raised = partition._replace(
                    leader=NO_LEADER,
                    leader_epoch=restored.leader_epoch + 1,
                    partition_epoch=partition.partition_epoch + 1,
                )
                records.append(partition_record(topic.id, index, raised, version))
    # No broker got this block.
    records.append(ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=restored.producer_id))
    return records
