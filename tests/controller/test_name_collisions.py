"""Topics that would share metric names."""

from __future__ import annotations

from pykbroker.controller.name_collisions import NameCollisions


def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    names = NameCollisions()
    for name in ("a.b", "plain", "c_d"):
        names.add(name)
    assert names.of("a_b") == {"a.b"}
    assert names.of("c.d") == {"c_d"}
    assert not names.of("plain")
    assert not names.of("a.c")


def test_a_deleted_topic_collides_with_none() -> None:
    names = NameCollisions()
    names.add("a.b.c")
    names.add("a_b.c")
    names.remove("a.b.c")
    assert names.of("a_b_c") == {"a_b.c"}
    names.remove("a_b.c")
    names.remove("never.was")
    assert not names.of("a_b_c")
    names.add("a.b")
    names.clear()
    assert not names.of("a_b")
