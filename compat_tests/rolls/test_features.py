"""A feature level that only this build serves: it is finalised when the last node has this build, and not before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.exactly_once.three_nodes import NUMBERS, REPLICATED
from compat_tests.mixed_cluster.members import PATIENCE_S, Cluster, Member
from compat_tests.rolls.builds import earlier
from compat_tests.rolls.test_upgrade import EARLIER
from pykbroker.metadata.features import METADATA_VERSION, METADATA_VERSION_LATEST
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire

UPGRADE = 1


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster({number: Member("pykbroker") for number in NUMBERS}, settings=REPLICATED, directories=1) as cluster:
        yield cluster


def raised(cluster: Cluster) -> tuple[int, str]:
    """Ask for this build's level of metadata.version; returns the error code and its text."""
    update = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=METADATA_VERSION_LATEST, upgrade_type=UPGRADE)
    with Wire(cluster.address(cluster.living()[0]), timeout=PATIENCE_S) as wire:
        answer = wire.call(UpdateFeaturesRequest(feature_updates=[update], timeout_ms=60_000))
    return answer.error_code, answer.error_message or ""


@pytest.mark.long(amount="five restarts of three nodes")
@pytest.mark.timeout(600)
def test_a_level_waits_for_the_last_node_and_a_step_back_is_possible_until_then(cluster: Cluster) -> None:
    build = earlier(EARLIER)
    cluster.pythons = dict.fromkeys(NUMBERS, build)
    cluster.format()
    cluster.start_all()
    cluster.create("kept", NUMBERS)

    def goes_to_this_build(number: int) -> None:
        cluster.stop(number)
        del cluster.pythons[number]
        cluster.start(number)
        cluster.in_sync("kept")

    goes_to_this_build(1)
    goes_to_this_build(2)
    code, text = raised(cluster)
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert METADATA_VERSION in text
    cluster.stop(1)
    cluster.pythons[1] = build
    cluster.start(1)
    cluster.in_sync("kept")
    goes_to_this_build(1)
    goes_to_this_build(3)
    eventually("the level is raised", lambda: raised(cluster)[0] == ErrorCode.NONE, seconds=PATIENCE_S)
    cluster.create("new", NUMBERS)
    assert not cluster.complaints()
