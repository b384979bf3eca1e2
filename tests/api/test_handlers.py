"""The modules of the rows keep their functions for dispatch in `HANDLERS`, and nowhere else."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module

import pytest

from pykbroker.api import TABLE
from pykbroker.dispatch.rows import Handlers, ServedApi


@pytest.mark.parametrize("api", TABLE, ids=lambda api: api.module)
def test_a_row_has_what_its_module_has(api: ServedApi) -> None:
    module = import_module(f"pykbroker.api.{api.module}")
    handlers = module.HANDLERS
    assert isinstance(handlers, Handlers)
    # A function that is there under the name of a field is not forgotten. `refused` may be a helper of another kind.
    for name in {each.name for each in fields(Handlers)} - {"refused"}:
        assert getattr(handlers, name) is vars(module).get(name), name
    assert (handlers.refused is not None) == api.forward
