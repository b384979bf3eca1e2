"""The features that this release can serve, and their levels.

A cluster that begins here finalises the same features as Apache Kafka does with the same metadata.version, even
features that are not served here. So pykbroker and Apache Kafka format a directory with the same content, and each can
continue with the other's directory. `kraft.version` belongs to the quorum. It is in control records, not in metadata
records, and is added for clients only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykbroker.metadata.image import MetadataImage, VersionRange

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
#: 1: flexible records of the transaction log; 2: the epoch rises with each transaction (KIP-890).
TRANSACTION_VERSION: Final = "transaction.version"
#: 1: groups of the consumer protocol (KIP-848).
GROUP_VERSION: Final = "group.version"
#: 1: eligible leader replicas (KIP-966).
ELR_VERSION: Final = "eligible.leader.replicas.version"
#: 1: share groups (KIP-932); 2: their dead letter queues (KIP-1191).
SHARE_VERSION: Final = "share.version"
#: the first level of share.version at which share groups may have dead letter queues
DEAD_LETTERS_FROM: Final = 2
STREAMS_VERSION: Final = "streams.version"

#: 3.3-IV3, the first level that Apache Kafka 4 still reads.
METADATA_VERSION_MIN: Final = 7
#: 4.3-IV0, with which a new cluster begins unless another level is chosen. So a node of Apache Kafka 4.3 can join it.
METADATA_VERSION_DEFAULT: Final = 30
#: 4.4-IV2, the highest level that is served.
METADATA_VERSION_LATEST: Final = 33

#: metadata.version levels by their names in Apache Kafka. Position 0 is level 7.
_NAMES: Final = (
    ("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2")
    + ("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0")
    + ("4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0")
    + ("4.4-IV0", "4.4-IV1", "4.4-IV2")
)

SUPPORTED: Final[dict[str, VersionRange]] = {
    METADATA_VERSION: VersionRange(METADATA_VERSION_MIN, METADATA_VERSION_LATEST),
    KRAFT_VERSION: VersionRange(0, 1),
    TRANSACTION_VERSION: VersionRange(0, 2),
    GROUP_VERSION: VersionRange(0, 1),
    ELR_VERSION: VersionRange(0, 1),
    SHARE_VERSION: VersionRange(0, 2),
}

#: Features that are not served. A cluster may still have them, because they only add groups, which clients cannot use
#: here.
KEPT: Final[dict[str, VersionRange]] = {STREAMS_VERSION: VersionRange(0, 1)}

#: The levels with which brokers and controllers register. Each finalised level must be within them.
REGISTERED: Final[dict[str, VersionRange]] = SUPPORTED | KEPT

#: metadata.version 3.5-IV2, the first with credentials of SCRAM users
SCRAM_FROM: Final = 11

#: feature -> for each level (its position), the metadata.version from which on a new cluster begins with that level.
_DEFAULT_FROM: Final = {
    KRAFT_VERSION: (7, 21),
    TRANSACTION_VERSION: (7, 24, 24),
    GROUP_VERSION: (7, 22),
    ELR_VERSION: (7, 26),
    SHARE_VERSION: (7, 28, 31),
    STREAMS_VERSION: (7, 29),
}

#: in the order of `kafka-storage version-mapping`
_MAPPED: Final = (KRAFT_VERSION, TRANSACTION_VERSION, GROUP_VERSION, ELR_VERSION, SHARE_VERSION, STREAMS_VERSION)

#: (feature, level) -> the lowest metadata.version that it needs. Other levels work with each metadata.version.
_NEEDS: Final = {(ELR_VERSION, 1): 23}


def default_levels(metadata_version: int) -> dict[str, int]:
    """Return the levels that a new cluster with this metadata.version finalises. `kraft.version` is left out, because
    the quorum has it from its first voters."""
    levels = {METADATA_VERSION: metadata_version}
    for name in sorted(_DEFAULT_FROM.keys() - {KRAFT_VERSION}):
        levels[name] = max(level for level, since in enumerate(_DEFAULT_FROM[name]) if since <= metadata_version)
    return levels


def bootstrap_levels(levels: Mapping[str, int]) -> dict[str, int]:
    """Return the levels that are written: `metadata.version` first, then the other features by name. Level 0 is left
    out."""
    others = {name: level for name, level in sorted(levels.items()) if level and name != METADATA_VERSION}
    return {METADATA_VERSION: levels[METADATA_VERSION], **others}


#: The levels that the first leader of a new cluster writes.
BOOTSTRAP_LEVELS: Final[dict[str, int]] = bootstrap_levels(default_levels(METADATA_VERSION_DEFAULT))


class FeatureError(ValueError):
    """The feature or the level does not exist here. The text is Apache Kafka's."""


def chosen_levels(release: str | None, features: Mapping[str, int], *, dynamic_quorum: bool) -> dict[str, int]:
    """Return the bootstrap levels of `kafka-storage format --release-version ... --feature name=level ...`. Raises
    FeatureError."""
    if METADATA_VERSION in features:
        if release is not None:
            raise FeatureError("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
        version = features[METADATA_VERSION]
        if not METADATA_VERSION_MIN <= version <= METADATA_VERSION_LATEST:
            raise FeatureError(
                f"No MetadataVersion with feature level {version}. "
                f"Valid feature levels are from {METADATA_VERSION_MIN} to {METADATA_VERSION_LATEST}."
            )
    else:
        version = METADATA_VERSION_DEFAULT if release is None else metadata_version_level(release)
    known = sorted(REGISTERED.keys() - {METADATA_VERSION})
    levels = default_levels(version)
    for name, level in features.items():
        if name == METADATA_VERSION:
            continue
        if name not in known:
            raise FeatureError(f"Unsupported feature: {name}. Supported features are: {', '.join(known)}")
        if name == KRAFT_VERSION:
            _check_kraft_version(level, dynamic_quorum=dynamic_quorum)
        if not REGISTERED[name].min <= level <= REGISTERED[name].max:
            raise FeatureError(f"No feature:{name} with feature level {level}")
        unmet = unmet_dependency(name, level, {METADATA_VERSION: version})
        if unmet is not None:
            raise FeatureError(unmet)
        levels[name] = level
    levels.pop(KRAFT_VERSION, None)
    return bootstrap_levels(levels)


def unmet_dependency(name: str, level: int, levels: Mapping[str, int]) -> str | None:
    """Return why a feature cannot have this level with the `levels` of the other features, or None."""
    needed = _NEEDS.get((name, level), 0)
    if levels.get(METADATA_VERSION, 0) >= needed:
        return None
    return f"{name} could not be set to {level} because it depends on {METADATA_VERSION} level {needed}"


def _check_kraft_version(level: int, *, dynamic_quorum: bool) -> None:
    flags = "one of the flags --standalone, --initial-controllers, or --no-initial-controllers is used."
    if level == 0 and dynamic_quorum:
        raise FeatureError(
            f"Cannot set kraft.version to 0 if controller.quorum.voters is empty and {flags} "
            "For dynamic controllers support, try removing the --feature flag for kraft.version."
        )
    if level != 0 and not dynamic_quorum:
        raise FeatureError(
            f"Cannot set kraft.version to {level} unless controller.quorum.voters is empty and {flags} "
            "For dynamic controllers support, try using one of --standalone, --initial-controllers, or "
            "--no-initial-controllers and removing controller.quorum.voters."
        )


def metadata_version_level(name: str) -> int:
    """Return 30 for `4.3-IV0`, `4.3` and `4.3.1`: a release's number means its last level. Raises FeatureError."""
    if name in _NAMES:
        return METADATA_VERSION_MIN + _NAMES.index(name)
    release = ".".join(name.split("-")[0].split(".")[:2])
    last = [index for index, known in enumerate(_NAMES) if known.startswith(f"{release}-IV") and "-" not in name]
    if not last:
        raise FeatureError(f"Unknown metadata.version '{name}'. Supported metadata.version are: {', '.join(_NAMES)}")
    return METADATA_VERSION_MIN + last[-1]


def metadata_version_name(level: int) -> str:
    """Return `4.3-IV0` for 30."""
    index = level - METADATA_VERSION_MIN
    return _NAMES[index] if 0 <= index < len(_NAMES) else str(level)


def version_mapping(release: str | None) -> tuple[str, dict[str, int]]:
    """Return the answer of `kafka-storage version-mapping` for a release, or for that of new clusters: its name as it
    was given, and the level of each feature with which a cluster of that release begins. Raises FeatureError."""
    name = metadata_version_name(METADATA_VERSION_DEFAULT) if release is None else release
    level = metadata_version_level(name)
    levels = {METADATA_VERSION: level}
    for feature in _MAPPED:
        levels[feature] = max(at for at, since in enumerate(_DEFAULT_FROM[feature]) if since <= level)
    return name, levels


def dependency_of(name: str, level: int) -> int:
    """Return the lowest metadata.version that a level of a feature needs, 0 if it works with all. Raises FeatureError
    in the cases of `kafka-storage feature-dependencies`."""
    if name == METADATA_VERSION:
        if not METADATA_VERSION_MIN <= level <= METADATA_VERSION_LATEST:
            raise FeatureError(f"Unknown metadata.version {level}")
        return 0
    supported = REGISTERED.get(name)
    if supported is None:
        raise FeatureError(f"Unknown feature: {name}")
    if not supported.min <= level <= supported.max:
        raise FeatureError(f"Feature level {level} is not supported for feature {name}")
    return _NEEDS.get((name, level), 0)


def dependency_lines(name: str, level: int) -> list[str]:
    """Return the lines of kafka-storage and kafka-features about `dependency_of`. Raises FeatureError."""
    needed = dependency_of(name, level)
    if needed:
        return [f"{name}={level} requires:", f"    {METADATA_VERSION}={needed} ({metadata_version_name(needed)})"]
    release = f" ({metadata_version_name(level)})" if name == METADATA_VERSION else ""
    return [f"{name}={level}{release} has no dependencies."]


def transaction_version(image: MetadataImage) -> int:
    """Return the finalised level, 0 if there is none."""
    return image.features.finalized.get(TRANSACTION_VERSION, 0)


def group_version(image: MetadataImage) -> int:
    """Return the finalised level, 0 if there is none."""
    return image.features.finalized.get(GROUP_VERSION, 0)


def share_version(image: MetadataImage) -> int:
    """Return the finalised level, 0 if there is none. From level 1 on a cluster has share groups."""
    return image.features.finalized.get(SHARE_VERSION, 0)


def finalized_features(image: MetadataImage, kraft_version: int) -> dict[str, int]:
    """Return the finalised levels for clients: the image's features, and `kraft.version` of the quorum."""
    levels = image.features.all()
    if kraft_version > 0:
        levels[KRAFT_VERSION] = kraft_version
    return levels


def beyond_served(levels: Mapping[str, int]) -> list[str]:
    """Return one text for each finalised level that no node of this release can register with."""
    found = []
    for name, level in sorted(levels.items()):
        known = REGISTERED.get(name, VersionRange(0, 0))
        if level > known.max or 0 < level < known.min:
            shown = [str(each) for each in (level, known.min, known.max)]
            if name == METADATA_VERSION:
                shown = [f"{each} ({metadata_version_name(each)})" for each in (level, known.min, known.max)]
            found.append(f"{name} is at level {shown[0]}, and this release serves {shown[1]} to {shown[2]}")
    return found


def not_served(image: MetadataImage) -> dict[str, int]:
    """Return the finalised features that are not served here (KEPT)."""
    return {name: level for name, level in sorted(image.features.finalized.items()) if name in KEPT and level}
