"""Values that only a properties file may set are refused, and no text of a client costs the node seconds."""

from __future__ import annotations

import pytest

from pykbroker.config.provider_names import left_over
from pykbroker.resource_configs.config_changes import check_start_only


@pytest.mark.parametrize(
    "key",
    [
        "config.providers",
        "config.providers.env.class",
        "listener.name.x.config.providers",
        "listener.name.x\n.config.providers.y",
        "sasl.server.callback.handler.class",
        "listener.name.x\n.plain.sasl.server.callback.handler.class",
    ],
)
def test_keys_of_the_properties_file_alone(key: str) -> None:
    assert check_start_only({key: "x"}).failed


@pytest.mark.parametrize("value", ["${env:X}", "a\n${\n}", "}${}", " python:a.b"])
def test_values_of_the_properties_file_alone(value: str) -> None:
    assert check_start_only({"ssl.key.password": value}).failed


@pytest.mark.parametrize(("key", "value"), [("my.config.providersx", "}${"), ("xconfig.providers", "$}{")])
def test_what_looks_alike_may_be_said(key: str, value: str) -> None:
    assert not check_start_only({key: value}).failed


def test_a_long_text_is_judged_at_once() -> None:
    """Each of these would take an expression that begins anew at each place minutes, or hours."""
    opened = "${" * 1_000_000
    assert not check_start_only({"k": opened, "." * 1_000_000: "", "config.providers" * 100_000: ""}).failed
    assert not list(left_over({"config.providers": "env", "k": "${:" * 100_000}))
