"""Tells the authorizer of the ACLs that the metadata log has.

Not responsible for when the first of them are complete: the quorum says when all that is committed was told.
"""

from __future__ import annotations

from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import MetadataImage
from pykbroker.security.standard_authorizer import StandardAuthorizer


class AclPublisher:
    """A publisher of the metadata loader."""

    def __init__(self, authorizer: StandardAuthorizer) -> None:
        self._authorizer = authorizer

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        if delta.acls_changed:
            self._authorizer.change(delta.acls_changed)
