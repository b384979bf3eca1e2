"""The entities that kafka-configs changes, and its pairs."""

from __future__ import annotations

import pytest

from pykbroker.tools.kafka.configs import OPTIONS, scram_credential
from pykbroker.tools.kafka.entities import Entity, added, deleted, entities_of


def found(*words: str) -> list[Entity]:
    return entities_of(OPTIONS.parse(words))


def test_entities_by_flag_and_by_type_and_name() -> None:
    assert found("--topic", "t") == [Entity("topics", "t")]
    assert found("--entity-type", "topics") == [Entity("topics")]
    assert found("--entity-type", "brokers", "--entity-default") == [Entity("brokers", "")]
    assert found("--broker-defaults") == [Entity("brokers", "")]
    assert found("--client", "c", "--user", "u") == [Entity("users", "u"), Entity("clients", "c")]
    both = ["--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", "c"]
    assert found(*both) == [Entity("users", ""), Entity("clients", "c")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "At least one entity type must be specified"),
        ("--entity-type x", "Invalid entity type x, the entity type must be one of topics"),
        ("--topic t --broker 1", "Only 'users' and 'clients' entity types may be specified together"),
        ("--broker x", "The entity name for brokers must be a valid integer broker id, but it is: x"),
        ("--topic t --entity-name x", "should not be used in conjunction with specific entity flags"),
    ],
)
def test_entities_that_are_none(words: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        found(*words.split())
    assert said in str(caught.value)


def test_pairs_and_keys() -> None:
    given = OPTIONS.parse(["--add-config", "a=1,b=[x,y] , c=d=e", "--delete-config", "k1, k2"])
    assert added(given) == {"a": "1", "b": "x,y", "c": "d=e"}
    assert deleted(given) == ["k1", "k2"]
    with pytest.raises(ValueError, match=r"must be in the format"):
        added(OPTIONS.parse(["--add-config", "a"]))


def test_credentials() -> None:
    assert scram_credential("SCRAM-SHA-256", "iterations=8192,password=a,b=c") == (8192, "a,b=c")
    assert scram_credential("SCRAM-SHA-512", "password=x") == (4096, "x")
    with pytest.raises(ValueError, match=r"less than the minimum 4096"):
        scram_credential("SCRAM-SHA-256", "iterations=1,password=x")
    with pytest.raises(ValueError, match=r"Invalid credential property"):
        scram_credential("SCRAM-SHA-256", "x")
