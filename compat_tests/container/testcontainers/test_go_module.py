"""Testcontainers for Go: its Kafka module, from a small program that is built once per session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compat_tests.built import go_program
from compat_tests.container.testcontainers.conftest import OutputOf

pytestmark = pytest.mark.timeout(900)

HERE = Path(__file__).parent / "go"


def test_go_module(tagged: str, output_of: OutputOf) -> None:
    said = json.loads(output_of([str(go_program(HERE)), tagged, "one", "two", "three"]))
    assert said == {"cluster": "4L6g3nShT-eMCtK--X86sw", "records": ["one", "two", "three"]}
