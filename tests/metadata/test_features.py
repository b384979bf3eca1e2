"""Features of a new cluster. The expectations are what `kafka-storage format` of Apache Kafka 4.3.1 wrote or said."""

from __future__ import annotations

import pytest

from pykbroker.config.load import development_profile, load
from pykbroker.metadata.features import BOOTSTRAP_LEVELS, FeatureError, chosen_levels, metadata_version_level
from pykbroker.metadata.records import encode_record
from pykbroker.storage.format import StorageFormatError, bootstrap_records
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_raft.metadata_storage import write_bootstrap
from pykbroker_wire.stored.metadata import FeatureLevelRecord

NEWEST = [
    ("eligible.leader.replicas.version", 1),
    ("group.version", 1),
    ("share.version", 1),
    ("streams.version", 1),
    ("transaction.version", 2),
]


@pytest.mark.parametrize(
    ("release", "features", "written"),
    [
        (None, {}, [("metadata.version", 30), *NEWEST]),
        (
            None,
            {"transaction.version": 1, "group.version": 0, "share.version": 0},
            [
                ("metadata.version", 30),
                ("eligible.leader.replicas.version", 1),
                ("streams.version", 1),
                ("transaction.version", 1),
            ],
        ),
        (None, {"metadata.version": 20}, [("metadata.version", 20)]),
        (None, {"kraft.version": 1}, [("metadata.version", 30), *NEWEST]),
        ("4.2-IV0", {"eligible.leader.replicas.version": 0}, [("metadata.version", 28), *NEWEST[1:3], NEWEST[4]]),
        ("4.1", {}, [("metadata.version", 27), *NEWEST[:2], NEWEST[4]]),
        (
            "4.0-IV1",
            {"eligible.leader.replicas.version": 1},
            [("metadata.version", 23), *NEWEST[:2]],
        ),
        # share.version 2 allows dead letter queues.
        ("4.4", {}, [("metadata.version", 33), *NEWEST[:2], ("share.version", 2), *NEWEST[3:]]),
        ("4.4-IV1", {}, [("metadata.version", 32), *NEWEST[:2], ("share.version", 2), *NEWEST[3:]]),
        ("4.3", {"share.version": 2}, [("metadata.version", 30), *NEWEST[:2], ("share.version", 2), *NEWEST[3:]]),
        ("3.9", {}, [("metadata.version", 21)]),
        ("4.0-IV0", {}, [("metadata.version", 22), ("group.version", 1)]),
        ("4.0-IV2", {}, [("metadata.version", 24), ("group.version", 1), ("transaction.version", 2)]),
        (
            "3.9",
            {"transaction.version": 2, "group.version": 1},
            [("metadata.version", 21), ("group.version", 1), ("transaction.version", 2)],
        ),
    ],
)
def test_what_is_written(release: str | None, features: dict[str, int], written: list[tuple[str, int]]) -> None:
    assert list(chosen_levels(release, features, dynamic_quorum=True).items()) == written


def test_the_newest_is_what_a_node_begins_with_when_nobody_chose() -> None:
    assert chosen_levels(None, {}, dynamic_quorum=False) == BOOTSTRAP_LEVELS


@pytest.mark.parametrize(
    ("release", "features", "dynamic", "said"),
    [
        (None, {"transaction.version": 3}, True, "No feature:transaction.version with feature level 3"),
        (None, {"transaction.version": -1}, True, "No feature:transaction.version with feature level -1"),
        (None, {"kraft.version": 2}, True, "No feature:kraft.version with feature level 2"),
        (
            None,
            {"bogus.version": 1},
            True,
            "Unsupported feature: bogus.version. Supported features are: eligible.leader.replicas.version, gro",
        ),
        (
            "4.0-IV0",
            {"eligible.leader.replicas.version": 1},
            True,
            "eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23",
        ),
        (None, {"kraft.version": 0}, True, "Cannot set kraft.version to 0 if controller.quorum.voters is empty and"),
        (None, {"kraft.version": 1}, False, "Cannot set kraft.version to 1 unless controller.quorum.voters is empty"),
        (None, {"metadata.version": 3}, True, "No MetadataVersion with feature level 3. Valid feature levels are"),
        ("3.9", {"metadata.version": 21}, True, "Use --release-version instead of --feature metadata.version=X"),
        ("3.2", {}, True, "Unknown metadata.version '3.2'. Supported metadata.version are: 3.3-IV3, 3.4-IV0, "),
        ("3", {}, True, "Unknown metadata.version '3'."),
        ("4.5-IV0", {}, True, "Unknown metadata.version '4.5-IV0'."),
        ("4.4", {"share.version": 3}, True, "No feature:share.version with feature level 3"),
        ("", {}, True, "Unknown metadata.version ''."),
    ],
)
def test_what_is_refused(release: str | None, features: dict[str, int], dynamic: bool, said: str) -> None:
    with pytest.raises(FeatureError) as caught:
        chosen_levels(release, features, dynamic_quorum=dynamic)
    assert str(caught.value).startswith(said)


def test_names_of_releases() -> None:
    assert [metadata_version_level(name) for name in ("3.3", "3.7", "3.7.2", "4.0", "4.2-IV1", "4.3", "4.4.0")] == [
        7, 19, 19, 25, 29, 30, 33,
    ]  # fmt: skip


def test_directories_that_apache_kafka_formatted_begin_as_it_would_begin_them() -> None:
    config = load(development_profile("/data", 0))
    disk = MemoryDisk()
    disk.make_dirs("/data")

    def written(**levels: int) -> list[str]:
        records = [FeatureLevelRecord(name=name.replace("_", "."), feature_level=levels[name]) for name in levels]
        write_bootstrap(disk, "/data", [encode_record(record, 30) for record in records], now_ms=1)
        found = bootstrap_records(disk, config)
        assert found is not None
        return [f"{one.name}={one.feature_level}" for one in found if isinstance(one, FeatureLevelRecord)]

    assert bootstrap_records(disk, config) is None
    assert written(metadata_version=30, share_version=1, transaction_version=2) == [
        "metadata.version=30",
        "share.version=1",
        "transaction.version=2",
    ]
    with pytest.raises(StorageFormatError, match="version to 34, and this release supports 7 to 33"):
        written(metadata_version=34)
    with pytest.raises(StorageFormatError, match=r"share\.version to 3, and this release supports 0 to 2"):
        written(metadata_version=30, share_version=3)
    with pytest.raises(StorageFormatError, match=r"unheard\.of to 1, and this release supports 0 to 0"):
        written(metadata_version=30, unheard_of=1)
