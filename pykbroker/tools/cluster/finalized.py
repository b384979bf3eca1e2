"""Features of the cluster: the levels that its nodes support, and the finalized levels (KIP-584)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from pykbroker.tools.cluster.asked_cluster import AskedCluster
from pykbroker.tools.cluster.failure import AskFailed, check, failed


class FeatureMove(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(slots=True, frozen=True)
class DescribedFeature:
    name: str
    least: int
    greatest: int
    #: 0 if the feature is not finalized
    level: int


def described(cluster: AskedCluster) -> tuple[list[DescribedFeature], int]:
    """Return every feature, ordered by name, and the epoch of the finalized features (-1 if there is none)."""
    from pykbroker_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

    request = ApiVersionsRequest(client_software_name="pykbroker", client_software_version="0")
    answer = cluster.ask(request, ApiVersionsResponse, least=3)
    check(answer.error_code)
    levels = {row.name: row.max_version_level for row in answer.finalized_features}
    found = [
        DescribedFeature(row.name, row.min_version, row.max_version, levels.get(row.name, 0))
        for row in answer.supported_features
    ]
    return sorted(found, key=lambda one: one.name), answer.finalized_features_epoch


def update(
    cluster: AskedCluster, levels: dict[str, int], move: FeatureMove, *, validate_only: bool
) -> dict[str, AskFailed | None]:
    """Finalize levels; returns the error of each feature, or None."""
    from pykbroker_wire.messages.update_features import (
        FeatureUpdateKey,
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )

    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=move) for name, level in levels.items()
        ],
        validate_only=validate_only,
    )
    answer = cluster.ask_controller(request, UpdateFeaturesResponse, least=1)
    outcome: dict[str, AskFailed | None] = dict.fromkeys(levels)
    if answer.error_code:
        # From version 2 on, one error applies to all features.
        return dict.fromkeys(levels, failed(answer.error_code, answer.error_message))
    for row in answer.results:
        outcome[row.feature] = failed(row.error_code, row.error_message) if row.error_code else None
    return outcome
