"""Builds requests from plain values: fields that a version lacks are left out, so one row covers all versions of an
API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compat_tests.acls.acl_cases import ID
from generate.layout import Class, snake
from generate.schema import Field
from pykbroker_wire.primitives import TopLevel
from testkit.messages.catalogue import Entry, entry


def build(api: str, version: int, values: Mapping[str, Any], topic_ids: Mapping[str, bytes]) -> TopLevel:
    """Return the request of an API, `values` by the names of its fields. A uuid may be written `id:topic`."""
    item = entry(f"{api}Request")
    made = _struct(item, item.top, version, values, topic_ids)
    assert isinstance(made, TopLevel)
    return made


def _struct(item: Entry, cls: Class, version: int, values: Mapping[str, Any], topic_ids: Mapping[str, bytes]) -> Any:
    fields = {snake(field.name): field for field in cls.fields}
    unknown = values.keys() - fields.keys()
    assert not unknown, f"{cls.name} has no {unknown}"
    flexible = version in item.message.flexible
    chosen = {}
    for name, value in values.items():
        field = fields[name]
        if version in field.versions and (flexible or version not in field.tagged):
            chosen[name] = _value(item, cls, field, version, value, topic_ids)
    return getattr(item.module, cls.name)(**chosen)


def _value(item: Entry, cls: Class, field: Field, version: int, value: Any, topic_ids: Mapping[str, bytes]) -> Any:
    if isinstance(value, list):
        return [_value(item, cls, field, version, each, topic_ids) for each in value]
    if isinstance(value, str) and value.startswith(ID):
        return topic_ids[value.removeprefix(ID)]
    if field.is_struct and value is not None:
        return _struct(item, cls.structs[field.type], version, value, topic_ids)
    return value
