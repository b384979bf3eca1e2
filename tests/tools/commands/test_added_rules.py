"""`pykbroker acls add`: a role needs all that it takes to act, and a rule that exists already is not counted."""

from __future__ import annotations

import pytest

from pykbroker.__main__ import main
from pykbroker.testing import SecureBroker


def test_a_consumer_needs_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    """kafka-acls wants one with --consumer, too. The cluster is not asked."""
    assert main(["acls", "add", "alice", "--topic", "orders", "--role", "consumer", "-b", "127.0.0.1:1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pykbroker: --role consumer needs a --group: ")


@pytest.mark.slow
def test_rules_that_exist_are_not_counted_as_added(capsys: pytest.CaptureFixture[str]) -> None:
    with SecureBroker(acls=True) as broker:
        at = ["-b", broker.bootstrap_servers, "--command-config", broker.properties_file("admin")]
        added = ["acls", "add", "alice", "--topic", "orders"]
        for words, said in (
            (("--allow", "read"), "Added 1 rule for User:alice."),
            (("--allow", "read", "--allow", "describe"), "Added 1 rule for User:alice, and 1 existed already."),
            (("--group", "*", "--role", "consumer"), "Added 1 rule for User:alice, and 2 existed already."),
            (("--group", "*", "--role", "consumer"), "Added 0 rules for User:alice, and 3 existed already."),
        ):
            assert main([*added, *words, *at]) == 0
            assert capsys.readouterr().out.splitlines() == [said]
