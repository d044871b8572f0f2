"""An entry as bytes: any damage is found, and is one kind of error."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from cachestack.entries import Entry
from cachestack.keys import Partition
from cachestack.stores.codec import CorruptEntry, decode_entry, encode_entry

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_one_flipped_bit_anywhere_is_found(make_entry, at, bit):
    data = bytearray(encode_entry(make_entry(vector=b"\1" * 64)))
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(CorruptEntry):
        decode_entry(bytes(data))


@quick
@given(st.binary(max_size=200))
def test_other_bytes_are_not_an_entry(data):
    with pytest.raises(CorruptEntry):
        decode_entry(data)


@quick
@given(st.text(), st.lists(st.text()), st.one_of(st.none(), st.binary()))
def test_every_text_and_vector_survives(make_entry, text, tags, vector):
    entry = make_entry(text, answer=text, tags=tuple(tags), vector=vector, principal=text or None)
    assert decode_entry(encode_entry(entry)) == entry


def test_the_whole_wall_survives(make_entry):
    entry = make_entry()
    for partition in (Partition("a", "u", "r", 2**44), Partition("a", epoch=1), Partition("a")):
        walled = replace(entry, partition=partition)
        assert decode_entry(encode_entry(walled)).partition == partition
    assert "epoch" not in entry.as_dict()["partition"]  # entries from before there were epochs are the same bytes


def test_no_vector_is_not_an_empty_vector(make_entry):
    assert decode_entry(encode_entry(make_entry(vector=None))).vector is None
    assert decode_entry(encode_entry(make_entry(vector=b""))).vector == b""


def test_an_entry_written_before_parts_had_versions_is_read(make_entry):
    entry = make_entry()
    fields = entry.as_dict()
    del fields["part_versions"]
    assert Entry.from_dict(fields) == entry
