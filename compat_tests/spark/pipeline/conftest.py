from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.node import Node
from compat_tests.spark.pipeline.copying import World
from compat_tests.topics import Topics


@pytest.fixture
def world(broker: Node, topics: Topics, tmp_path: Path) -> World:
    return World(broker, topics, tmp_path)
