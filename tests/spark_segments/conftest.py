"""The common parts of the tests of the data source."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pykbroker_wire.records import columns


@pytest.fixture(scope="module", params=["compiled", "python"])
def twin(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests of modules that use it run on both loops over records."""
    if request.param == "python":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(columns, "fill_records", columns.fill_records_python)
            yield
    elif columns.COMPILED:
        yield
    else:
        pytest.skip("the record loops are not compiled here")
