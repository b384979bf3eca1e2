"""No claim is lost while tests move: each test of before.txt stands where moves.toml says."""

from __future__ import annotations

import ast

import pytest

from tests.ledger.ledger import Moves, names, read_before, read_moves, standing


@pytest.mark.slow
def test_each_test_of_before_stands_or_has_a_reason() -> None:
    moves, now = read_moves(), standing()
    before = read_before()
    assert len(before) > 3_000
    lost = sorted(test for test in before if test not in moves.gone and moves.now(test) not in now)
    assert not lost, "moves.toml says where a test stands now, or why it is gone"


@pytest.mark.slow
def test_each_row_says_something_of_a_test_of_before() -> None:
    moves, now, before = read_moves(), standing(), read_before()
    idle = [old for old in moves.moved if not any(test.startswith(old) for test in before)]
    assert not idle
    assert moves.gone.keys() <= before
    assert not [test for test in moves.gone if moves.now(test) in now], "it is not gone"
    assert all(moves.gone.values())


def test_the_longest_beginning_decides() -> None:
    moves = Moves(
        {
            "tests/a/": "tests/b/",
            "tests/a/test_x.py": "tests/c/test_y.py",
            "tests/a/test_x.py::test_one": "tests/d.py::test",
        },
        {},
    )
    assert moves.now("tests/a/test_w.py::test_one") == "tests/b/test_w.py::test_one"
    assert moves.now("tests/a/test_x.py::test_two") == "tests/c/test_y.py::test_two"
    assert moves.now("tests/a/test_x.py::test_one") == "tests/d.py::test"
    assert moves.now("tests/a/test_x.py::test_one_more") == "tests/c/test_y.py::test_one_more"
    assert moves.now("tests/aa/test_x.py::test_one") == "tests/aa/test_x.py::test_one"


def test_what_counts_as_a_test() -> None:
    module = ast.parse(
        "def test_a(): pass\nasync def test_b(): pass\nclass TestC: pass\nTestD = M.TestCase\ndef no(): pass"
    )
    assert list(names(module)) == ["test_a", "test_b", "TestC", "TestD"]
