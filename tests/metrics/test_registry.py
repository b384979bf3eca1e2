"""All numbers of a node, read at once and in steps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykbroker.metrics.registry import Metrics, Numbers, Sample, merged


@given(
    st.dictionaries(st.sampled_from([f"k:type=A,name=n{number}PerSec" for number in range(9)]), st.integers(0, 9)),
    st.lists(st.lists(st.tuples(st.text("ab=,", max_size=3), st.integers(0, 9)), max_size=300), max_size=3),
)
def test_steps_find_what_one_reading_finds(counted: dict[str, int], families: list[list[tuple[str, int]]]) -> None:
    metrics = Metrics()
    for name, value in counted.items():
        metrics.counter(name).value = value
    metrics.gauge("k:name=a-count", lambda: 3, counts=True)
    for numbers in families:
        metrics.family(lambda numbers=numbers: iter(numbers))  # type: ignore[misc]
    found: list[Sample] = []
    steps = sum(1 for _ in metrics.read_in_steps(found))
    assert found == list(metrics.samples())
    assert steps >= len(found)


def test_objects_come_and_go_between_two_steps() -> None:
    metrics, objects = Metrics(), {"a": 1, "b": 2}

    def family() -> Numbers:
        for name in list(objects):
            if name in objects:
                yield name, objects[name]

    metrics.family(family)
    metrics.gauge("g", lambda: 7)
    found: list[Sample] = []
    steps = metrics.read_in_steps(found)
    next(steps)
    next(steps)
    del objects["b"]
    objects["c"] = 3
    metrics.remove("g")
    assert list(steps)
    assert [sample.name for sample in found] == ["a", "g"]


def test_few_samples_join_many_sorted_ones() -> None:
    many = [Sample("b", 1.0, True), Sample("d", 5.0, False), Sample("f", 1.0, False)]
    few = [Sample("e", 3.0, False), Sample("b", 2.0, True), Sample("a", 4.0, False), Sample("d", 2.0, False)]
    assert merged(few, many) == [
        Sample("a", 4.0, False),
        Sample("b", 3.0, True),
        Sample("d", 5.0, False),
        Sample("e", 3.0, False),
        Sample("f", 1.0, False),
    ]
    assert len(many) == 3
