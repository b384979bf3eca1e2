"""Which features this release can serve, and at which levels.

Finalised are only features that are served. `kraft.version` is the quorum's: it is written by control records, not by
metadata records, and is joined in for clients only.
"""

from __future__ import annotations

from typing import Final

from pykbroker.metadata.image import MetadataImage, VersionRange

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
#: 1: flexible records of the transaction log; 2: the epoch rises with every transaction (KIP-890).
TRANSACTION_VERSION: Final = "transaction.version"
#: 1: groups of the consumer protocol (KIP-848).
GROUP_VERSION: Final = "group.version"

#: 3.3-IV3, the first that Apache Kafka 4 still reads, and 4.3-IV0.
METADATA_VERSION_MIN: Final = 7
METADATA_VERSION_LATEST: Final = 30

#: metadata.version levels by name, as Apache Kafka calls them; position 0 is level 7.
_NAMES: Final = (
    ("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2")
    + ("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0")
    + ("4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0")
)

SUPPORTED: Final[dict[str, VersionRange]] = {
    METADATA_VERSION: VersionRange(METADATA_VERSION_MIN, METADATA_VERSION_LATEST),
    KRAFT_VERSION: VersionRange(0, 1),
    TRANSACTION_VERSION: VersionRange(0, 2),
    GROUP_VERSION: VersionRange(0, 1),
}

#: What the first leader of a new cluster writes.
BOOTSTRAP_LEVELS: Final[dict[str, int]] = {
    METADATA_VERSION: METADATA_VERSION_LATEST,
    TRANSACTION_VERSION: 2,
    GROUP_VERSION: 1,
}


def metadata_version_name(level: int) -> str:
    """`4.3-IV0` for 30."""
    index = level - METADATA_VERSION_MIN
    return _NAMES[index] if 0 <= index < len(_NAMES) else str(level)


def transaction_version(image: MetadataImage) -> int:
    """0 when the feature is not finalised."""
    return image.features.finalized.get(TRANSACTION_VERSION, 0)


def group_version(image: MetadataImage) -> int:
    """0 when the feature is not finalised."""
    return image.features.finalized.get(GROUP_VERSION, 0)


def finalized_features(image: MetadataImage, kraft_version: int) -> dict[str, int]:
    """What clients are told is finalised: the image's features and the quorum's own."""
    levels = image.features.all()
    if kraft_version > 0:
        levels[KRAFT_VERSION] = kraft_version
    return levels
