"""No regular expression meets a client's text unless it is listed here with a test of how its time grows.

Python's `re` goes back over a text. If an expression can match a stretch in two ways, its time grows with the square of
the length or faster, on the loop that serves all clients. RE2 has a test of its own (test_regex.py).
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pytest

from pykbroker.api import describe_configs
from pykbroker.config import checks, kinds, protection
from pykbroker.config.kinds import ConfigError, Type, parse_text
from pykbroker.config.listeners import _LISTENER, security_protocol_map
from pykbroker.dispatch import request_log
from pykbroker.entry import failures
from pykbroker.metadata import topic_names
from pykbroker.metrics import exposition, registry
from pykbroker.sasl import scram
from pykbroker.security import client_software, host_ranges
from pykbroker.tls import stores
from tests.growth import assert_grows_no_faster
from tests.parsed import parsed
from tests.test_house import MODULES, is_generated

#: Rooms that serve no client: programs that people run, and what only tests have.
TOOLS: Final = ("pykbroker.tools", "pykbroker.testing", "pykbroker.extras")

FILE: Final = "the operator's properties file, environment or command line"
NAME: Final = "names of files in a directory of the node"
OWN: Final = "texts of this program"
CERTIFICATE: Final = "the name in a certificate that the operator's authority signed, by the operator's own expression"
BOUNDED: Final = "no more than ten digits are read"

#: Uses that meet no text of a client, or no more than a few characters of it, and why.
APART: Final = {
    "pykbroker.api.reference._PREFIX": OWN,
    "pykbroker.config.checks._HOST": FILE,
    "pykbroker.config.properties._ESCAPED": FILE,
    "pykbroker.config.properties._SURROGATES": FILE,
    "pykbroker.config.properties 'split' '\\\\r\\\\n|\\\\r|\\\\n'": FILE,
    "pykbroker.config.providers.allowed": FILE,
    "pykbroker.config.provider_names.VARIABLE": "a change with a variable in its value is refused before",
    "pykbroker.config.topics_to_create._ENTRY": FILE,
    "pykbroker.controller.configs 'fullmatch' '[+-]?[0-9]{1,10}'": BOUNDED,
    "pykbroker.runtime.kafka_opts._OPTION": FILE,
    "pykbroker.share_partitions.offset_runs._ACQUIRED_RUN": "states of records, as bytes of the room itself",
    "pykbroker.share_partitions.offset_runs._ARCHIVING_RUN": "states of records, as bytes of the room itself",
    "pykbroker.share_partitions.offset_runs._AVAILABLE_RUN": "states of records, as bytes of the room itself",
    "pykbroker.share_partitions.offset_runs._FINAL": "states of records, as bytes of the room itself",
    "pykbroker.tls.cipher_suites._OLDER": "names of OpenSSL's cipher suites",
    "pykbroker.tls.principal_mapping._END_OF_RULE": FILE,
    "pykbroker.tls.principal_mapping._NAMED_GROUP": FILE,
    "pykbroker.tls.principal_mapping._RULE": FILE,
    "pykbroker.tls.principal_mapping.compiled": CERTIFICATE,
    "pykbroker.tls.principal_mapping 'match' '[0-9]+'": FILE,
    "pykbroker.tls.principal_mapping 'match' '\\\\{([a-zA-Z][a-zA-Z0-9]*)\\\\}'": FILE,
    "pykbroker.resource_configs.broker_loggers 'fullmatch' '[+-]?[0-9]{1,10}'": BOUNDED,
    "pykbroker.resource_configs.config_changes 'fullmatch' _INTEGER": BOUNDED,
    "pykbroker.storage.initial_voters._NUMBER": FILE,
    "pykbroker.storage.scram_arguments._INTEGER": FILE,
    "pykbroker.storage.scram_arguments 'sub' ',+$'": FILE,
    "pykbroker_log.names._MARKED": NAME,
    "pykbroker_log.names._PARTITION": NAME,
    "pykbroker_log.names._SEGMENT": NAME,
    "pykbroker_raft.checkpoint._NAME": NAME,
}


class Met(NamedTuple):
    """A use that meets a client's text: what calls it, and the parts of texts that would cost it most."""

    call: Callable[[str], object]
    parts: tuple[str, ...]


def value_of(kind: Type) -> Callable[[str], object]:
    return lambda text: parse_text("group.coordinator.threads", kind, text)


def name_of_a_metric(group_id: str) -> object:
    return exposition.named(f"kafka.server:type=x,group={registry.tag(group_id)},name=yPerSec", counts=True)


_OF_GROUPS: Final = Met(name_of_a_metric, ('"', "\\", ",a=", '="', '",a="', "\n", "a", "-"))

#: Each text is a part again and again, alone, after the first part and before an end that does not fit.
MET: Final = {
    "pykbroker.api.describe_configs._INTEGER": Met(describe_configs._INTEGER.fullmatch, ("1", "+")),
    "pykbroker.config.checks 'fullmatch' '[+-]?[0-9]{1,10}'": Met(checks.parse_ip_overrides, ("1", "a:1,", " ,")),
    "pykbroker.config.kinds 'fullmatch' '(?:.*://)?(?:\\\\[([0-9a-zA-Z\\\\-%._:]*)\\\\]|([0-9a-zA-Z\\\\-%._]*)):([0-9]{1,5})'": Met(  # noqa: E501
        kinds.parse_host_port, ("://", "a", ":", "a://a:", "[", "1")
    ),
    "pykbroker.config.kinds 'fullmatch' '([0-9]+:[0-9]+)?'": Met(
        lambda text: kinds.ThrottledReplicas().check("leader.replication.throttled.replicas", (text,)), ("1", ":", "1:")
    ),
    "pykbroker.config.kinds 'fullmatch' _DOUBLE": Met(value_of(Type.DOUBLE), ("1", "1.", "1e", "e", "-")),
    "pykbroker.config.kinds 'fullmatch' _INTEGER": Met(value_of(Type.INT), ("1", "-")),
    "pykbroker.config.kinds 'fullmatch' pattern": Met(kinds._duration_seconds, ("P", "1", "1D", "PT", "PT1H", "PT1.")),
    "pykbroker.config.kinds 'split' '[.$]'": Met(value_of(Type.CLASS), (".", "a", "a.", "$")),
    "pykbroker.config.listeners._LISTENER": Met(_LISTENER.fullmatch, ("://", "a", "a://a:", ":", "[", "1")),
    "pykbroker.entry.failures._STEERS": Met(failures.one_line, ("\n", "a", "\x1b[", "\u2028a")),
    "pykbroker.metrics.exposition._BETWEEN_PROPERTIES": _OF_GROUPS,
    "pykbroker.metrics.exposition._ESCAPED": _OF_GROUPS,
    "pykbroker.metrics.exposition._NOT_IN_NAMES": _OF_GROUPS,
    "pykbroker.metrics.exposition._QUOTED": _OF_GROUPS,
    "pykbroker.metrics.registry._GROWS": Met(registry._GROWS.match, (",name=", "PerSec", "A", "-count", "a,name=A")),
    "pykbroker.metrics.registry._PLAIN": Met(registry.tag, ("a", "-", "%", "é")),
    "pykbroker.metadata.topic_names._LEGAL": Met(topic_names._LEGAL.fullmatch, ("a", ".")),
    "pykbroker.security.client_software._SOFTWARE": Met(client_software._SOFTWARE.fullmatch, ("a", "-", "a-", ".")),
    "pykbroker.security.host_ranges._IPV4_RANGE": Met(
        host_ranges._IPV4_RANGE.fullmatch, ("1", ".", "1.1.1.1/", "1.", "/")
    ),
    "pykbroker.security.host_ranges._IPV6_RANGE": Met(
        host_ranges._IPV6_RANGE.fullmatch, ("[", ":", "a:", "a%", "%", "]", "::/", "1", "a%a/")
    ),
    "pykbroker.sasl.scram._CLIENT_FIRST": Met(
        scram._CLIENT_FIRST.fullmatch, ("n,,n=", "a", "n,,n=a,r=", ",a=b", "n,a=", "=2C")
    ),
    "pykbroker.sasl.scram._CLIENT_FINAL": Met(
        scram._CLIENT_FINAL.fullmatch, ("c=", "abcd", "c=,r=a", ",a=b", ",p=", "=")
    ),
    "pykbroker.sasl.scram._SERVER_FINAL": Met(scram._SERVER_FINAL.fullmatch, ("v=", "abcd", ",", "e=a")),
    "pykbroker.sasl.scram._SERVER_FIRST": Met(scram._SERVER_FIRST.fullmatch, ("r=a", "r=a,s=", "abcd", "1", ",i=1")),
    "pykbroker.tls.stores._BLOCK": Met(
        lambda text: stores._BLOCK.findall(text.encode()),
        ("-----BEGIN A-----\n", "-----BEGIN ", "-", "A", "-----BEGIN A-----\nAAAA-----END ", "\n"),
    ),
    "pykbroker.dispatch.request_log._NOT_ASCII": Met(lambda text: request_log._NOT_ASCII.sub("", text), ("é", "éa")),
}
#: Done by hand because an expression was too slow; what clients can reach them with is tried in the same way.
BY_HAND: Final = {
    "a list": Met(value_of(Type.LIST), (" ", ",", " ,", "a ")),
    "a map of protocols": Met(
        lambda text: security_protocol_map(text, explicit=True, controller_names=(), listeners=()),
        (" ", ",", "A:SSL, "),
    ),
    "a key of a listener": Met(protection._split_key, (".ssl", "ssl.", "a", ".", ".sasl.", "\n")),
    "names of listeners": Met(lambda text: protection._Names([text]).longest_of(text), (".", "a.", "a")),
}


def uses(tree: ast.Module) -> Iterator[str]:
    """The calls of `re`: by the name that a compiled expression has, or by the function and its first argument."""
    named = {
        id(node.value): target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
            name = named.get(id(node)) if node.func.attr == "compile" else None
            yield f".{name}" if name else f" {node.func.attr!r} {ast.unparse(node.args[0])}"


@pytest.mark.slow
def test_no_expression_meets_a_clients_text_unless_its_growth_is_tried() -> None:
    found = {
        f"{module}{use}"
        for module, path in MODULES.items()
        if not is_generated(module) and not module.startswith(TOOLS)
        for use in uses(parsed(path))
    }
    assert found == APART.keys() | MET.keys()
    assert not APART.keys() & MET.keys()


@pytest.mark.slow
def test_re_is_imported_under_its_own_name() -> None:
    for module, path in MODULES.items():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom):
                assert node.module != "re", f"{module}: the test above looks for re.<function>"
            elif isinstance(node, ast.Import):
                assert all(alias.name != "re" or alias.asname is None for alias in node.names), module


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MET, *BY_HAND])
def test_the_time_grows_with_the_length_of_a_text_and_no_faster(name: str) -> None:
    met = {**MET, **BY_HAND}[name]
    for begin in ("", met.parts[0]):
        for part in met.parts:
            for end in ("", "!", "}"):

                def make(length: int, begin: str = begin, part: str = part, end: str = end) -> Callable[[], object]:
                    text = begin + part * (length // len(part)) + end

                    def call() -> None:
                        with contextlib.suppress(ConfigError):
                            met.call(text)

                    return call

                assert_grows_no_faster(make, 5_000)


@pytest.mark.slow
def test_an_expression_that_goes_back_fails() -> None:
    slow = re.compile(r"\s*,")
    with pytest.raises(AssertionError):
        assert_grows_no_faster(lambda length: lambda: slow.split(" " * length), 5_000)
