"""Mutants change the product while they are applied, and not after."""

from __future__ import annotations

import pytest

from bench.mutants import MUTANTS, applied


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_there_within_its_block_only(name: str) -> None:
    places = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in MUTANTS[name]()]
    with applied(name):
        assert all(getattr(owner, attribute) is not before for owner, attribute, before in places)
    assert all(getattr(owner, attribute) is before for owner, attribute, before in places)


def test_without_a_name_nothing_changes() -> None:
    before = [(owner, name, getattr(owner, name)) for make in MUTANTS.values() for owner, name, _ in make()]
    with applied(""):
        assert all(getattr(owner, name) is found for owner, name, found in before)
