"""The descriptors of a process are divided, and never more than there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.runtime.descriptor_budget import UNBOUNDED, DescriptorBudget, divide


@given(st.one_of(st.integers(0, 2000), st.integers(0, UNBOUNDED)))
def test_the_parts_are_no_more_than_the_limit(limit: int) -> None:
    budget = divide(limit)
    assert budget.files + budget.reserve + budget.connections <= limit
    assert min(budget.files, budget.reserve, budget.connections) >= min(128, limit // 4)


@pytest.mark.parametrize(
    ("limit", "parts"),
    [
        (256, DescriptorBudget(85, 64, 107)),
        (512, DescriptorBudget(170, 128, 214)),
        (1024, DescriptorBudget(341, 128, 555)),
        (4096, DescriptorBudget(1365, 512, 2219)),
        (1 << 20, DescriptorBudget(16384, 2048, 1030144)),
    ],
)
def test_the_parts_of_usual_limits(limit: int, parts: DescriptorBudget) -> None:
    assert divide(limit) == parts
