"""The same requests to Apache Kafka and to pykbroker; the decoded answers are compared field by field."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from compat_tests.differential import masks, nodes
from compat_tests.differential.compare import compare, run
from compat_tests.differential.scripts import KIND_OF, LONG, SCRIPTS
from compat_tests.differential.session import Step
from pykbroker.api import TABLE
from pykbroker.dispatch.rows import On
from pykbroker_wire.apis import APIS
from testkit.oracle.kafka import kafka_libs

transcripts: dict[str, list[Step]] = {}


class Pairs:
    """One pair of nodes at a time: the one of the kind that was last requested."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._kind = ""
        self._pair: tuple[nodes.Side, nodes.Side] | None = None

    def of(self, kind: str) -> tuple[nodes.Side, nodes.Side]:
        if self._pair is None or kind != self._kind:
            self.close()
            self._kind, self._pair = kind, self._stack.enter_context(nodes.both(nodes.KINDS[kind]))
        return self._pair

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def pairs() -> Iterator[Pairs]:
    kafka_libs()
    pairs = Pairs()
    yield pairs
    pairs.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long(amount="one script")] if name in LONG else []) for name in SCRIPTS],
)
def test_pykbroker_answers_like_apache_kafka(name: str, pairs: Pairs) -> None:
    theirs, ours = pairs.of(KIND_OF[name])
    kafka = transcripts[name] = run(SCRIPTS[name], theirs)
    found = compare(kafka, run(SCRIPTS[name], ours))
    if found:
        pytest.fail(f"python compat_tests/differential/run.py {name}\n" + "\n".join(found), pytrace=False)


def test_every_version_of_every_api_is_asked() -> None:
    if len(transcripts) < len(SCRIPTS) - len(LONG):
        pytest.skip("not all scripts ran")
    asked = {(step.api, step.version) for steps in transcripts.values() for step in steps}
    missing = [
        f"{APIS[row.key].name} v{version}"
        for row in TABLE
        if row.on & On.BROKER
        for version in range(APIS[row.key].min_version, APIS[row.key].max_version + 1)
        if (APIS[row.key].name, version) not in asked
    ]
    assert not missing


def test_masks_are_few_and_have_reasons() -> None:
    assert len(masks.MASKS) <= masks.LIMIT
    for mask in masks.MASKS:
        assert mask.reason
        assert not mask.field.rpartition(".")[2].endswith("error_code")
