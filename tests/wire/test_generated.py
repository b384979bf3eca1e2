"""The generated files match the schemas, and importing the table of APIs imports none of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from generate import layout, project
from generate.schema import ALL, NONE, OPEN, SchemaError, Versions, format_message, parse
from pykbroker_wire.apis import APIS, ApiKey
from testkit.messages.catalogue import WIRE, schemas


@pytest.mark.slow
def test_generating_again_changes_nothing() -> None:
    package = WIRE / "pykbroker_wire"
    wanted = project.generated_files(list(schemas()))
    assert project.write(package, wanted, project.owned_sources(package), check=True) == []


def test_check_reports_a_changed_a_missing_and_a_superfluous_file(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("old")
    (tmp_path / "changed.py").write_text("before")
    wanted = {"changed.py": "after", "new/one.py": "fresh"}
    said = ["changed: changed.py", "new: new/one.py", "gone: old.py"]
    assert project.write(tmp_path, wanted, {"old.py", "changed.py"}, check=True) == said
    assert (tmp_path / "changed.py").read_text() == "before"
    assert project.write(tmp_path, wanted, {"old.py", "changed.py"}, check=False) == said
    assert sorted(path.name for path in tmp_path.rglob("*.py")) == ["changed.py", "one.py"]


def test_every_schema_is_written_as_we_write_it() -> None:
    for path in sorted((WIRE / "schemas").glob("*.msg")):
        assert format_message(parse(path.read_text())) == path.read_text(), path.name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "letter Name 1, versions 0, flexible 0+\n",
        "request Name 1, versions 0, flexible 0+, colour blue\n",
        "request Name 1, versions x, flexible 0+\n",
        "request Name 1, versions 0, flexible 0+\nA: int32\n",
        "request Name 1, versions 0, flexible 0+\nA: [int32 0+\n",
        "request Name 1, versions 0, flexible 0+\nA: int33 0+\n",
        "request Name 1, versions 0, flexible 0+\nA: int32 0+, shiny\n",
        "request Name 1, versions 0, flexible 0+\nA: int32 0+\n  B: int32 0+\n",
        "request Name 1, versions 0, flexible 0+\nA: [Pair] 0+\n    B: int32 0+\n",
    ],
)
def test_a_schema_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        parse(text)


def test_ranges_of_versions() -> None:
    assert [str(Versions.parse(text)) for text in ("none", "3", "3-3", "3-5", "3+")] == ["none", "3", "3", "3-5", "3+"]
    assert Versions(0, 5) & Versions(3, OPEN) == Versions(3, 5)
    assert Versions(0, 5).minus(Versions(3, OPEN)) == Versions(0, 2)
    assert Versions(3, 9).minus(Versions(0, 4)) == Versions(5, 9)
    assert Versions(3, 9).minus(ALL) == NONE
    with pytest.raises(SchemaError):
        Versions(0, 9).minus(Versions(3, 4))


def test_names_are_snake_case_by_kafkas_rule() -> None:
    names = {
        "TimeoutMs": "timeout_ms", "IsrNodes": "isr_nodes", "leaderEpoch": "leader_epoch", "Enable2Pc": "enable2_pc",
        "KRaftVersion": "kraft_version", "From": "from_",
    }  # fmt: skip
    assert {name: layout.snake(name) for name in names} == names


def test_every_api_is_in_the_table() -> None:
    assert sorted(ApiKey) == list(range(95))
    assert sorted(APIS) == [key for key in range(95) if key not in (4, 5, 6, 7)]
    for key, api in APIS.items():
        for cls in (api.request, api.response):
            assert key == cls.API_KEY
            assert api.min_version == cls.MIN_VERSION
            assert api.flexible_from == cls.FLEXIBLE_FROM
            assert api.latest_version == cls.LATEST_VERSION
        assert api.max_version == api.request.MAX_VERSION
    produce, vote = APIS[ApiKey.PRODUCE], APIS[ApiKey.VOTE]
    assert (produce.min_version, produce.max_version, produce.flexible_from) == (3, 13, 9)
    assert sorted(produce.listeners) == ["broker"]
    assert sorted(vote.listeners) == ["controller"]
    initialise = APIS[ApiKey.INIT_PRODUCER_ID]
    assert (initialise.max_version, initialise.latest_version) == (5, 6)


@pytest.mark.slow
def test_no_message_is_imported_before_it_is_asked_for() -> None:
    program = """
import sys
import pykbroker_wire.apis, pykbroker_wire.headers, pykbroker_wire.errors, pykbroker_wire.stored_framing
import pykbroker_wire.messages, pykbroker_wire.stored.metadata, pykbroker_wire.stored.group
def loaded():
    ours = [name for name in sys.modules if name.startswith("pykbroker_wire.")]
    return sorted(name for name in ours if ".messages." in name or ".stored." in name and name.count(".") > 2)
assert loaded() == [], loaded()
pykbroker_wire.apis.APIS[0].request
from pykbroker_wire.stored.metadata import TopicRecord
assert loaded() == ["pykbroker_wire.messages.produce", "pykbroker_wire.stored.metadata.topic_record"], loaded()
assert not {"asyncio", "socket", "ssl", "threading", "dataclasses", "inspect"} & set(sys.modules)
"""
    environment = {"PYTHONPATH": str(WIRE)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
