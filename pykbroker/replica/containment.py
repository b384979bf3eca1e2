"""Keeps an unexpected exception of one partition away from the partitions that come after it.

Metadata is published once, and a look at all partitions comes again only when the last one has ended. An exception that
left the loop would cost all later partitions their change. Not for expected errors, which are answers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


@contextmanager
def contained(partition: object, what: str) -> Iterator[None]:
    """Log an exception, and go on. `what` names the action that failed."""
    try:
        yield
    except Exception:
        logger.exception("Partition %s: %s", partition, what)
