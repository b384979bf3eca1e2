"""The check of the metadata: every level of every feature, tiered topics, settings of brokers, and newer records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykbroker.config.load import load
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.features import KRAFT_VERSION, METADATA_VERSION, REGISTERED, beyond_served, chosen_levels
from pykbroker.metadata.image import EMPTY_IMAGE, ConfigResource, MetadataImage
from pykbroker.storage.format import Formatted
from pykbroker.tools.node_migration.directory_findings import OpenedDirectories
from pykbroker.tools.node_migration.findings import NodeFinding
from pykbroker.tools.node_migration.metadata_findings import image_findings
from pykbroker_raft.metadata_storage import DIRECTORY
from pykbroker_wire.stored.metadata import ConfigRecord, FeatureLevelRecord, TopicRecord
from pykbroker_wire.stored.metadata.client_quota_record import ClientQuotaRecord, EntityData
from tests.tools.node_migration.nodes_to_check import checked, settings, stops, unpacked, warnings

SECRET = "s3cr3t-that-none-may-see"


def image(*records: Any) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in records:
        delta.replay(record)
    return delta.apply(10, 1)


def findings(found: MetadataImage, tmp_path: Path) -> list[NodeFinding]:
    opened = OpenedDirectories(Formatted("cluster", {}))
    return list(image_findings(load(settings(tmp_path)), found, opened, "the metadata log"))


SERVED = [(name, level) for name, known in REGISTERED.items() for level in range(known.min, known.max + 1)]
#: kraft.version is no record of the metadata but of the quorum
BEYOND = [(name, known.max + 1) for name, known in REGISTERED.items() if name != KRAFT_VERSION]
BEYOND += [(METADATA_VERSION, 6), ("new.version", 1)]


@pytest.mark.parametrize(("name", "level"), SERVED)
def test_each_level_that_a_node_registers_with_passes(name: str, level: int, tmp_path: Path) -> None:
    assert not stops(findings(image(FeatureLevelRecord(name=name, feature_level=level)), tmp_path))


@pytest.mark.parametrize("release", ["4.3", "4.4"])
def test_what_a_release_begins_with_passes(release: str, tmp_path: Path) -> None:
    """A cluster of Apache Kafka 4.4.0 at 4.3's levels passes, and so does one at its own."""
    begun = chosen_levels(release, {}, dynamic_quorum=True)
    assert begun[METADATA_VERSION] == {"4.3": 30, "4.4": 33}[release]
    assert begun["share.version"] == {"4.3": 1, "4.4": 2}[release]
    records = [FeatureLevelRecord(name=name, feature_level=level) for name, level in begun.items()]
    assert not stops(findings(image(*records), tmp_path))


@pytest.mark.parametrize(("name", "level"), BEYOND)
def test_each_other_level_is_a_stop(name: str, level: int, tmp_path: Path) -> None:
    (line,) = stops(findings(image(FeatureLevelRecord(name=name, feature_level=level)), tmp_path))
    assert line.startswith(f"The cluster has finalised a newer feature: {name} is at level {level}")


def test_a_newer_version_of_the_quorum() -> None:
    assert not beyond_served({KRAFT_VERSION: 1})
    assert beyond_served({KRAFT_VERSION: 2}) == ["kraft.version is at level 2, and this release serves 0 to 1"]


def test_a_feature_whose_groups_are_not_served_is_a_warning(tmp_path: Path) -> None:
    found = findings(image(FeatureLevelRecord(name="streams.version", feature_level=1)), tmp_path)
    assert warnings(found) == ["The cluster has features whose groups are not served: streams.version=1"]


def test_a_tiered_topic_is_a_stop_also_without_remote_keys_in_the_file(tmp_path: Path) -> None:
    config = ConfigRecord(
        resource_type=ConfigResource.TOPIC, resource_name="orders", name="remote.storage.enable", value="true"
    )
    (line,) = stops(findings(image(TopicRecord(name="orders", topic_id=bytes([1] * 16)), config), tmp_path))
    assert "remote.storage.enable" in line
    assert "orders" in line


@pytest.mark.parametrize("broker", ["", "1"])
def test_a_protection_that_is_set_in_the_metadata_is_a_stop(broker: str, tmp_path: Path) -> None:
    config = ConfigRecord(
        resource_type=ConfigResource.BROKER,
        resource_name=broker,
        name="listener.name.plaintext.ssl.keystore.password",
        value=SECRET,
    )
    found = findings(image(config), tmp_path)
    (line,) = stops(found)
    assert "listener.name.plaintext.ssl.keystore.password=[hidden]" in line
    assert SECRET not in repr(found)


def test_another_brokers_settings_are_not_this_ones(tmp_path: Path) -> None:
    config = ConfigRecord(
        resource_type=ConfigResource.BROKER, resource_name="2", name="authorizer.class.name", value="com.example.One"
    )
    assert not findings(image(config), tmp_path)


def test_client_quotas_have_no_effect(tmp_path: Path) -> None:
    quota = ClientQuotaRecord(
        entity=[EntityData(entity_type="user", entity_name="alice")], key="producer_byte_rate", value=1000.0
    )
    assert any("client quotas" in line for line in warnings(findings(image(quota), tmp_path)))


@pytest.mark.slow
def test_records_of_a_newer_release_are_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pykbroker.tools.node_migration import metadata_findings
    from pykbroker_wire.stored_framing import UnknownRecordType

    def decoded(value: bytes) -> object:
        raise UnknownRecordType(99)

    monkeypatch.setattr(metadata_findings, "decode_record", decoded)
    data = unpacked(tmp_path)
    said = stops(checked(settings(data)).findings)
    assert any("The metadata log has records of a newer release" in line for line in said), said


@pytest.mark.slow
def test_a_note_of_an_earlier_stay_of_pykbroker(tmp_path: Path) -> None:
    """Apache Kafka writes quorum-state without our mark, so the note counts no longer."""
    from pykbroker_raft.flushed_note import FILE, _line

    data = unpacked(tmp_path)
    (data / DIRECTORY / FILE).write_bytes(_line(10_000_000) * 2)
    found = checked(settings(data)).findings
    assert not stops(found)
    assert any(FILE in each.what and each.level.value == "ok" for each in found)
    # The lines of an earlier release count without a mark: then records are missing.
    (data / DIRECTORY / FILE).write_bytes(_line(10_000_000, b"") * 2)
    found = checked(settings(data)).findings
    assert any("The start refuses the metadata log" in line for line in stops(found))
    assert any(FILE in line and "an earlier release" in line for line in warnings(found))
