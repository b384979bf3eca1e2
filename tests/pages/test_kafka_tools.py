"""docs/kafka-tools.md lists the tools that are there, with their own words."""

from __future__ import annotations

import re

from pykbroker.tools.kafka.__main__ import TOOLS
from testkit.console import page

TEXT = page("docs/kafka-tools.md").read_text(encoding="utf-8")


def test_the_table_has_each_tool() -> None:
    assert dict(re.findall(r"^\| `([a-z0-9-]+)` \| (.+) \|$", TEXT, re.MULTILINE)) == TOOLS


def test_what_is_said_to_be_missing_is_missing() -> None:
    (missing,) = re.findall(r"Not written: (.*?)\.\n", TEXT, re.DOTALL)
    names = re.findall(r"`(?:kafka-)?([a-z-]+)`", missing)
    assert len(names) >= 4
    assert not TOOLS.keys() & set(names)
