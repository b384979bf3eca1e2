"""The effective configuration of a group, looked up again and again while it changes."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.config.dynamic import DynamicConfigs
from pykbroker.config.live import LiveConfig
from pykbroker.config.load import development_profile, load
from pykbroker.coordinator.group.configs import ConsumerGroupConfig, GroupConfigs, ShareGroupConfig
from pykbroker.coordinator.group.settings import GroupSettings


def configs(overrides: Mapping[str, Mapping[str, str]], properties: dict[str, str] | None = None) -> GroupConfigs:
    live = LiveConfig(load({**development_profile("x"), **(properties or {})}))
    return GroupConfigs(lambda: live.current, lambda group_id: overrides.get(group_id, {}))


def test_a_group_without_overrides_has_what_the_broker_says() -> None:
    assert configs({}).consumer("g") == ConsumerGroupConfig()
    properties = {"group.consumer.session.timeout.ms": "50000", "group.consumer.heartbeat.interval.ms": "6000"}
    assert configs({}, properties).consumer("g") == ConsumerGroupConfig(50_000, 6_000, 1_000)


def test_an_override_acts_on_its_group_within_the_bounds_of_the_broker() -> None:
    overrides = {
        "a": {"consumer.session.timeout.ms": "55000"},
        "low": {"consumer.session.timeout.ms": "1", "consumer.heartbeat.interval.ms": "1"},
        "high": {"consumer.heartbeat.interval.ms": "99999999", "consumer.assignment.interval.ms": "99999999"},
    }
    found = configs(overrides)
    assert found.consumer("a") == ConsumerGroupConfig(session_timeout_ms=55_000)
    assert found.consumer("low") == ConsumerGroupConfig()
    assert found.consumer("high") == ConsumerGroupConfig(heartbeat_interval_ms=15_000, assignment_interval_ms=15_000)
    assert found.consumer("other") == ConsumerGroupConfig()


def test_overrides_and_keys_of_the_broker_change_under_way() -> None:
    overrides: dict[str, dict[str, str]] = {}
    live = LiveConfig(load(development_profile("x")))
    found = GroupConfigs(lambda: live.current, lambda group_id: overrides.get(group_id, {}))
    assert found.consumer("g").session_timeout_ms == 45_000
    overrides["g"] = {"consumer.session.timeout.ms": "50000"}
    assert found.consumer("g").session_timeout_ms == 50_000
    overrides["g"] = {"consumer.session.timeout.ms": "51000"}
    assert found.consumer("g").session_timeout_ms == 51_000
    live.update(DynamicConfigs(broker={}, cluster={"group.consumer.assignment.interval.ms": "7"}))
    assert found.consumer("g") == ConsumerGroupConfig(session_timeout_ms=51_000, assignment_interval_ms=7)
    assert found.consumer("other") == ConsumerGroupConfig(assignment_interval_ms=7)
    del overrides["g"]
    assert found.consumer("g") == ConsumerGroupConfig(assignment_interval_ms=7)


def test_assignors_are_known_by_the_names_of_kafkas_classes_too() -> None:
    listed = "org.apache.kafka.coordinator.group.assignor.RangeAssignor,uniform"
    settings = GroupSettings.from_config(load({**development_profile("x"), "group.consumer.assignors": listed}))
    assert settings.consumer_assignors == ("range", "uniform")


def test_a_share_group_has_the_values_of_its_kind() -> None:
    overrides = {
        "a": {"share.session.timeout.ms": "55000", "consumer.session.timeout.ms": "50000"},
        "high": {"share.heartbeat.interval.ms": "99999999", "share.assignment.interval.ms": "99999999"},
    }
    found = configs(overrides, {"group.share.heartbeat.interval.ms": "6000"})
    assert found.share("g") == ShareGroupConfig(heartbeat_interval_ms=6_000)
    assert found.share("a") == ShareGroupConfig(session_timeout_ms=55_000, heartbeat_interval_ms=6_000)
    assert found.consumer("a") == ConsumerGroupConfig(session_timeout_ms=50_000)
    assert found.share("high") == ShareGroupConfig(heartbeat_interval_ms=15_000, assignment_interval_ms=15_000)
    settings = GroupSettings.from_config(
        load({**development_profile("x"), "group.share.max.size": "7", "group.share.initialize.retry.interval.ms": "9"})
    )
    assert (settings.share_max_size, settings.share_initialize_retry_interval_ms) == (7, 9)
