"""A step of a roll counts on the side of the controller that was active, and the active controller's node is last."""

from __future__ import annotations

from bench.rolls import ROLLS, SIDES, Step, numbers_of, order_of
from bench.run import compared
from bench.servers import ApacheKafka, Pykbroker


def step(started: str, controller: str, *pauses: float, took_the_controller: bool = False) -> Step:
    clients = {"asking every 10 ms": pauses, "librdkafka": [9.0], "Java producer": [8.0]}
    return Step(started, controller, took_the_controller, 20.0, clients)


def test_a_pause_counts_on_the_side_of_the_active_controller() -> None:
    found = numbers_of(
        [
            step(Pykbroker.name, ApacheKafka.name, 0.5, 0.1),
            step(Pykbroker.name, ApacheKafka.name, 0.7, 0.3, took_the_controller=True),
            step(Pykbroker.name, Pykbroker.name, 0.2, 0.4),
            step(Pykbroker.name, Pykbroker.name, 0.6, 0.8),
        ]
    )
    assert found["pykbroker starts on another node"] == [0.2, 0.4, 0.6, 0.8]
    assert found[SIDES.others("pykbroker starts on another node")] == [0.5, 0.1]
    assert found[SIDES.others("pykbroker starts on the active controller")] == [0.7, 0.3]
    assert "pykbroker starts on the active controller" not in found
    assert found["pykbroker starts, Java producer"] == [8.0, 8.0]
    assert found[SIDES.others("pykbroker starts, until the cluster is whole")] == [20.0, 20.0]


def test_every_figure_of_a_roll_has_both_sides() -> None:
    """Else a row would be left out of the page."""
    steps = [
        step(started, controller, 0.1, took_the_controller=took)
        for started in (ApacheKafka.name, Pykbroker.name)
        for controller in (ApacheKafka.name, Pykbroker.name)
        for took in (False, True)
    ]
    (rolls,) = ROLLS
    values = {Pykbroker.name: {**numbers_of(steps), "acknowledged records lost": [0.0], "failed sends": [0.0]}}
    rows = [compared(rolls, figure, values) for figure in rolls.figures]
    assert all(row is not None and row["sides"] == [SIDES.other, SIDES.ours] for row in rows)
    both = [row for row in rows if row is not None and SIDES.other in row]
    assert len(both) == len(rows) - 2


def test_the_active_controller_is_the_last() -> None:
    assert [order_of(active) for active in (1, 2, 3)] == [[2, 3, 1], [1, 3, 2], [1, 2, 3]]
