"""The metadata of a cluster in its members' files: the log, the snapshots, and their comparison.

Every member keeps the same log of metadata, and each makes snapshots of its own at offsets of its own. A snapshot is
compared with the log up to its offset: both are replayed here into an image. So a difference shows a value that Apache
Kafka's image, or ours, lost or added between log and snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import EMPTY_IMAGE, BrokerImage, MetadataImage
from pykbroker.metadata.records import decode_record
from pykbroker.metadata.replay import MetadataReplay
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records

FOLDER = "__cluster_metadata-0"


class Batch(NamedTuple):
    base_offset: int
    epoch: int
    data: bytes
    #: empty for a control batch
    records: list[TopLevel]


def batches(data: bytes) -> Iterator[Batch]:
    for at, header in iter_batches(data):
        whole = data[at : at + header.size_in_bytes]
        values = [] if header.is_control else [record.value for record in iter_records(data, at, header)]
        records = [decode_record(bytes(value)) for value in values if value is not None]
        yield Batch(header.base_offset, header.partition_leader_epoch, whole, records)


def log_of(data_dir: Path) -> list[Batch]:
    """Return the batches of a member's log. A killed node may have an incomplete last one, which is left out."""
    files = sorted((data_dir / FOLDER).glob("*.log"))
    return [batch for file in files for batch in batches(file.read_bytes())]


def snapshots_of(data_dir: Path) -> dict[int, Path]:
    """Return the snapshots by the offset after the last record of each. The one of `format` has no state of a log."""
    found = {int(path.name.split("-")[0]): path for path in (data_dir / FOLDER).glob("*.checkpoint")}
    return {offset: path for offset, path in found.items() if offset > 0}


def image_of_log(log: list[Batch], end: int) -> MetadataImage:
    """Return the image of all records below an offset."""
    image, replay = EMPTY_IMAGE, MetadataReplay()
    for batch in log:
        if batch.records and batch.base_offset < end:
            records = batch.records[: end - batch.base_offset]
            for change in replay.batch(image, records, batch.base_offset, batch.epoch):
                image = change.image
    return image


def image_of_snapshot(path: Path) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for batch in batches(path.read_bytes()):
        for record in batch.records:
            delta.replay(record)
    return delta.apply(0, 0, 0)


def contents(image: MetadataImage) -> dict[str, object]:
    """Return the content of the image, object by object. The order of maps means nothing."""
    topics = image.topics.by_id.values()
    held: dict[str, Mapping[Any, object]] = {
        "broker": {key: _sorted(broker) for key, broker in image.brokers.items()},
        "controller": image.controllers,
        "topic": {topic.name: topic.id for topic in topics},
        "partition": {(topic.name, index): part for topic in topics for index, part in topic.partitions.items()},
        "configs of": image.configs.by_resource,
        "quota of": image.client_quotas,
        "acl": image.acls,
        "credential": image.scram,
        "token": image.delegation_tokens,
        "features": {"": image.features},
        "producer ids": {"": image.producer_ids_next},
    }
    return {f"{what} {key}": thing for what, things in held.items() for key, thing in things.items()}


def _sorted(broker: BrokerImage) -> BrokerImage:
    """Sort the directories, because Apache Kafka keeps them in a list in varying order."""
    return replace(
        broker,
        directories=tuple(sorted(broker.directories)),
        cordoned_directories=tuple(sorted(broker.cordoned_directories)),
    )


def snapshot_differences(snapshot: Path, log: list[Batch]) -> list[str]:
    """Return the differences between the image of a snapshot and that of the whole log up to its end."""
    end = int(snapshot.name.split("-")[0])
    held, made = contents(image_of_snapshot(snapshot)), contents(image_of_log(log, end))
    return [
        f"{thing}: the snapshot has {held.get(thing)}, the log makes {made.get(thing)}"
        for thing in sorted(held.keys() | made.keys())
        if held.get(thing) != made.get(thing)
    ]


def log_differences(logs: dict[int, list[Batch]], end: int) -> list[str]:
    """Return the offsets at which the logs of members have different bytes. A log may begin later than another."""
    found = []
    held = {number: {batch.base_offset: batch.data for batch in log} for number, log in logs.items()}
    (first, reference), *others = held.items()
    for number, log in others:
        start = max(min(log), min(reference))
        for offset in sorted(log.keys() | reference.keys()):
            if start <= offset < end and log.get(offset) != reference.get(offset):
                found.append(f"nodes {first} and {number} differ at {offset}")
                break
    return found
