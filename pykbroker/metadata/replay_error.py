"""The error of a metadata log whose records cannot follow each other."""

from __future__ import annotations


class MetadataReplayError(Exception):
    """The metadata log has a record that cannot follow those before it."""
