from __future__ import annotations

from array import array

from hypothesis import example, given
from hypothesis import strategies as st

from openclaw_rl.shared.journal.encoding import pack_ids, unpack_ids

IDS = st.lists(st.one_of(st.integers(0, 300), st.integers(0, 0xFFFF), st.integers(0, 2**32 - 1)), max_size=60)


@given(IDS, IDS)
@example([0xFFFF], [0x10000])
@example([0x10000, 0x1000000, 0x1FFFF], [1])
@example([], [0x10000])
@example([1], [0x10000] + [7] * 20_000)  # further back than a dictionary reaches
def test_packed_ids_come_back(ids: list[int], near: list[int]) -> None:
    packed = pack_ids(array("I", ids), array("I", near))
    assert unpack_ids(packed, array("I", near)) == array("I", ids)


def test_ids_that_fit_two_bytes_take_no_more() -> None:
    ids = array("I", [number * 7919 % 50_000 for number in range(4000)])
    assert len(pack_ids(ids, array("I"))) < 2.1 * len(ids)
    assert len(pack_ids(ids, ids[:3000])) < 0.8 * 2 * len(ids)
