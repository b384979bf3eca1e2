"""pytest fixtures: `kafka_broker` (one node per session and per xdist worker) and `kafka_topics` (names that belong
to one test).

Nothing of pykbroker is imported until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pykbroker.testing.embedded import Broker


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    """A broker on a free port of localhost; `kafka_broker.bootstrap_servers` goes into any client."""
    from pykbroker.testing.embedded import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def kafka_topics(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """`kafka_topics("orders")` is a topic name that no other test uses, of this run or of another on the same
    broker."""
    import re
    import uuid

    prefix = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:100]
    namespace = f"{prefix}-{uuid.uuid4().hex[:8]}"

    def topic(name: str) -> str:
        return f"{namespace}-{name}"

    return topic
