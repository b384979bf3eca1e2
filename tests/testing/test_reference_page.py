"""The reference of the testing kit is generated, and says something of each public name."""

from __future__ import annotations

import re

from pykbroker import testing
from pykbroker.testing.reference import PAGE, page


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_each_name_has_a_text() -> None:
    sections = re.split(r"^#{2,3} ", page(), flags=re.MULTILINE)[1:]
    texts = {
        section.partition("\n")[0]: re.sub(r"```.*?```", "", section.partition("\n")[2], flags=re.DOTALL).strip()
        for section in sections
    }
    assert texts.keys() >= set(testing.__all__)
    assert {
        "Broker.create_topic",
        "Cluster.move_leader",
        "SecureBroker.confluent",
        "kafka_cluster_secure",
    } <= texts.keys()
    assert not [name for name, text in texts.items() if not text]
    assert not re.findall(r"^\| `\w+` \| +\|$", page(), re.MULTILINE)


def test_a_method_is_described_once() -> None:
    methods = re.findall(r"^### \w+\.(wait_for_records|kafka_python|faults)$", page(), re.MULTILINE)
    assert sorted(methods) == ["kafka_python", "wait_for_records"]
    assert "methods are those of [Broker](#broker)" in page().replace("\n", " ")
