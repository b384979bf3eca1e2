"""The changes of registered brokers and controllers between two images."""

from __future__ import annotations

import pytest

from pykbroker.metadata.cluster_delta import CLUSTER_RECORDS, ClusterDelta
from pykbroker.metadata.image import BrokerImage
from pykbroker.metadata.replay_error import MetadataReplayError
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)


def replay(delta: ClusterDelta, *records: TopLevel) -> None:
    for record in records:
        CLUSTER_RECORDS[type(record)](delta, record)


def registered(broker_id: int = 1, epoch: int = 5) -> BrokerImage:
    delta = ClusterDelta({}, {})
    replay(delta, RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, fenced=True))
    broker = delta.broker(broker_id)
    assert broker is not None
    return broker


def test_a_change_follows_from_the_image_and_from_earlier_records() -> None:
    delta = ClusterDelta({1: registered()}, {})
    assert not delta
    replay(
        delta,
        UnfenceBrokerRecord(id=1, epoch=5),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=1),
    )
    broker = delta.broker(1)
    assert broker is not None
    assert (broker.fenced, broker.in_controlled_shutdown) == (False, True)
    assert list(delta.brokers_changed) == [1]
    replay(delta, FenceBrokerRecord(id=1, epoch=5), UnregisterBrokerRecord(broker_id=1, broker_epoch=5))
    assert delta.broker(1) is None
    assert delta.brokers_changed == {1: None}


@pytest.mark.parametrize(
    "record",
    [
        FenceBrokerRecord(id=1, epoch=4),
        UnfenceBrokerRecord(id=2, epoch=5),
        UnregisterBrokerRecord(broker_id=2),
        UnregisterControllerRecord(controller_id=1),
    ],
    ids=["an epoch that is over", "an unknown broker", "a broker that is gone", "an unknown controller"],
)
def test_a_record_that_cannot_follow_changes_nothing(record: TopLevel) -> None:
    delta = ClusterDelta({1: registered()}, {})
    with pytest.raises(MetadataReplayError):
        replay(delta, record)
    assert not delta


def test_a_controller_is_registered_beside_the_brokers() -> None:
    delta = ClusterDelta({}, {})
    replay(delta, RegisterControllerRecord(controller_id=3))
    assert list(delta.controllers_changed) == [3]
    assert not delta.brokers_changed
    assert delta
    replay(delta, UnregisterControllerRecord(controller_id=3))
    assert delta.controllers_changed == {3: None}
    with pytest.raises(MetadataReplayError):
        replay(delta, UnregisterControllerRecord(controller_id=3))
