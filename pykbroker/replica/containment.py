"""Keeps an unexpected exception of one partition from affecting the partitions after it in a loop.

A change of the metadata is published only once, and a loop over all partitions begins again only if the last loop has
ended. If an exception ended the loop, all later partitions would miss their change. Not for expected errors, which are
returned to a caller.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


@contextmanager
def contained(partition: object, what: str) -> Iterator[None]:
    """Log an exception and continue. `what` is the log text for the action that failed."""
    try:
        yield
    except Exception:
        logger.exception("Partition %s: %s", partition, what)
