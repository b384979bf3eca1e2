"""Finalised features: UpdateFeatures (KIP-584, KIP-778, KIP-1022)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from pykbroker.controller.eligible import records_before_enabling
from pykbroker.controller.result import OK, Result, Verdict, failure
from pykbroker.controller.state import ControllerState
from pykbroker.metadata.features import (
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    REGISTERED,
    unmet_dependency,
)
from pykbroker.metadata.image import VersionRange
from pykbroker.metadata.snapshot import CONTROLLERS_FROM
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import FeatureLevelRecord, NoOpRecord


class UpgradeType(IntEnum):
    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Update(NamedTuple):
    level: int
    upgrade_type: int


#: Levels of metadata.version that changed the records' content. A downgrade below one of these levels would lose data.
_CHANGED_METADATA = frozenset({7, 8, 11, 12, 14, 15, 17, 20, 21, 22, 23, 24, 30, 32, 33})

_DISABLED = VersionRange(0, 0)


def update_features(
    state: ControllerState,
    updates: Mapping[str, Update],
    validate_only: bool,
    *,
    kraft_version: int,
    raise_kraft_version: Callable[[int], None],
) -> Result[Verdict]:
    """Make all updates or none. The response is the first verdict that is not OK.

    The quorum writes `kraft.version`, and it has the voters' supported ranges. `raise_kraft_version` is called last,
    when all other checks have passed, and raises INVALID_UPDATE_VERSION.
    """
    levels = {**state.image.features.all(), KRAFT_VERSION: kraft_version}
    proposed = {**levels, **{name: update.level for name, update in updates.items()}}
    records: list[TopLevel] = []
    if ELR_VERSION in updates and updates[ELR_VERSION].level > 0:
        records.extend(records_before_enabling(state))
    for name, update in updates.items():
        verdict = _check(state, name, levels.get(name, 0), update, proposed)
        if verdict.failed:
            return Result(verdict)
        if name != KRAFT_VERSION:
            records.append(FeatureLevelRecord(name=name, feature_level=update.level))
        elif update.upgrade_type == UpgradeType.UPGRADE:
            # The answer waits until this record is committed, and thus also for the quorum's record before it.
            records.append(NoOpRecord())
    raised = updates.get(KRAFT_VERSION)
    if raised is not None and raised.upgrade_type == UpgradeType.UPGRADE:
        try:
            raise_kraft_version(raised.level)
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_UPDATE_VERSION:
                raise
            return Result(failure(error.code, error.message))
    return Result(OK, [] if validate_only else records)


def _invalid(name: str, level: int, reason: str) -> Verdict:
    return failure(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {reason}")


def _check(state: ControllerState, name: str, current: int, update: Update, proposed: Mapping[str, int]) -> Verdict:
    """Check whether one update is allowed. `proposed` are the levels of all features after all updates."""
    level = update.level
    if update.upgrade_type not in (1, 2, 3):
        return _invalid(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        return _invalid(name, level, "A feature version cannot be less than 0.")
    reason = _unsupported(state, name, level)
    if reason is not None:
        return _invalid(name, level, reason)
    if level < current and update.upgrade_type == UpgradeType.UPGRADE:
        return _invalid(
            name,
            level,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return _invalid(name, level, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION:
        return _check_metadata_version(current, update)
    if name not in REGISTERED:
        return _invalid(name, level, f"Feature {name} not found.")
    if name == KRAFT_VERSION and level < current:
        return _invalid(name, level, "Can't downgrade the version of this feature.")
    unmet = unmet_dependency(name, level, proposed)
    return OK if unmet is None else _invalid(name, level, unmet)


def _check_metadata_version(current: int, update: Update) -> Verdict:
    level = update.level
    if level < current and any(level < changed <= current for changed in _CHANGED_METADATA):
        if update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE:
            reason = "Unsafe metadata downgrade is not supported in this version."
        else:
            reason = "Refusing to perform the requested downgrade because it might delete metadata information."
        prefix = f"Unsupported metadata.version downgrade from {current} to {level}."
        return failure(ErrorCode.INVALID_UPDATE_VERSION, f"{prefix} {reason}")
    return OK


def _unsupported(state: ControllerState, name: str, level: int) -> str | None:
    """Return why a node of the cluster could not serve the level, or None."""
    reason = _outside(f"Local controller {state.node_id}", REGISTERED.get(name, _DISABLED), level)
    if reason is not None:
        return reason
    for broker in state.image.brokers.values():
        reason = _outside(f"Broker {broker.id}", broker.features.get(name, _DISABLED), level)
        if reason is not None:
            return reason
    if state.metadata_version >= CONTROLLERS_FROM:
        for controller in state.image.controllers.values():
            if controller.id != state.node_id:
                reason = _outside(f"Controller {controller.id}", controller.features.get(name, _DISABLED), level)
                if reason is not None:
                    return reason
        for voter_id in sorted(state.config.voters):
            if voter_id != state.node_id and voter_id not in state.image.controllers:
                return f"controller {voter_id} has not registered, and may not support this feature"
    return None


def _outside(who: str, supported: VersionRange, level: int) -> str | None:
    if supported == _DISABLED:
        return None if level == 0 else f"{who} does not support this feature."
    if supported.min <= level <= supported.max:
        return None
    return f"{who} only supports versions {supported.min}-{supported.max}"
