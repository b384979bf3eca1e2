"""The output of `generate prometheus`, read back; its rules must name metrics that a node has."""

from __future__ import annotations

import re

import pytest
import yaml

from pykbroker.config.kinds import ConfigError
from pykbroker.metrics.exposition import named
from pykbroker.testing import Broker
from pykbroker.tools.manifests.prometheus import PrometheusConfig, prometheus, rules


def test_nodes() -> None:
    text = prometheus(PrometheusConfig(targets=("node-1", "node-2:9999"), job="shop", seconds=30))
    config = yaml.safe_load(text)
    assert config["global"] == {"scrape_interval": "30s"}
    (job,) = config["scrape_configs"]
    assert job == {"job_name": "shop", "static_configs": [{"targets": ["node-1:9404", "node-2:9999"]}]}


@pytest.mark.slow
def test_rules_name_metrics_of_a_node() -> None:
    with Broker() as broker:
        known = {named(name, counts=False).name for name in broker.metrics()}
    (group,) = yaml.safe_load(rules(PrometheusConfig(targets=("a",), job="shop")))["groups"]
    assert group["name"] == "shop"
    expressions = [rule["expr"] for rule in group["rules"]]
    names = {name for text in expressions for name in re.findall(r"kafka_\w+", text)}
    assert len(names) == len(expressions) - 1
    assert names <= known
    assert 'up{job="shop"} == 0' in expressions
    assert all(rule["annotations"]["summary"] for rule in group["rules"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"targets": ()}, "no node is named"),
        ({"targets": ("a b",)}, "is not a host and a port"),
        ({"targets": ("a:70000",)}, "is not a host and a port"),
        ({"targets": ('a"]',)}, "is not a host and a port"),
        ({"targets": ("a",), "job": "A b"}, "is not a name"),
        ({"targets": ("a",), "seconds": 0}, "a scrape each 0 s"),
    ],
)
def test_what_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        PrometheusConfig(**fields)  # type: ignore[arg-type]
