"""As `test_traps.py`, for what the semantic layer stands on: index, encoders, and the room that stores take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.full.trap_support import Trap, check, check_unspoilt

pytestmark = pytest.mark.full

INDEX = "semantic/index.py"
CONFORMANCE = "tests/stores/test_conformance.py"
DAMAGED_SNAPSHOT = "tests/semantic/test_index_snapshots.py::test_a_damaged_snapshot_is_counted_and_the_store_is_read"
GONE_OR_CHANGED = "tests/semantic/test_index.py::test_what_has_gone_or_changed_since_is_never_returned"
WINDOW = "tests/semantic/test_embed.py::test_the_window_counts_special_tokens_and_nothing_is_cut_silently"

TRAPS = (
    # 11: index and store out of step
    Trap(
        "what is written later is not taken in",
        INDEX,
        "if self._store.latest(group.partition) != group.seen:",
        "if False:",
        "tests/semantic/test_index.py::test_it_sees_every_later_write",
    ),
    Trap(
        "what is written during a reading is missed",
        INDEX,
        "group.vectors, group.seen, group.is_kept = vectors, seen, False",
        "group.vectors, group.seen, group.is_kept = vectors, self._store.latest(group.partition), False",
        "tests/semantic/test_index_threads.py::test_what_is_written_while_a_group_is_read_is_taken_in",
    ),
    Trap(
        "an entry that has become another one",
        INDEX,
        "if entry is None or entry.group != contract or entry.encoder != encoder:",
        "if entry is None or entry.encoder != encoder:",
        GONE_OR_CHANGED,
    ),
    Trap(
        "a store that lost its last writes and counted on",
        "semantic/group_files.py",
        "return record.complete and bool(record.changes) and record.changes[0].entry_id == last_id",
        "return record.complete",
        "tests/semantic/test_index_journal.py::test_a_store_that_lost_its_last_writes_and_counted_on_is_noticed",
    ),
    Trap(
        "a snapshot older than the change record",
        INDEX,
        "        if not changes.complete:\n            return self._read_all(group, vectors.dimension)\n",
        "",
        "tests/semantic/test_index.py::test_a_change_record_that_is_too_short_means_reading_again",
    ),
    Trap(
        "a damaged snapshot",
        "semantic/snapshots.py",
        'if header["digest"] != _digest([names, codes_part, vectors_part, *graph_parts]):',
        "if False:",
        DAMAGED_SNAPSHOT,
    ),
    Trap(
        "a damaged journal",
        "semantic/journal.py",
        "if len(payload) < length or zlib.crc32(payload) != checksum:",
        "if len(payload) < length:",
        "tests/semantic/test_index_journal.py::test_a_flipped_bit_gives_no_step_that_was_not_written",
    ),
    Trap(
        "what was removed while a graph was built",
        "semantic/vectors_group.py",
        "                else:\n                    made.remove(entry_id)\n",
        "",
        "tests/semantic/test_index_graphs.py"
        "::test_searches_go_on_while_a_graph_is_built_and_what_happened_meanwhile_is_in_it",
    ),
    Trap(
        "an entry without its exact key",
        "stores/tenant_file.py",
        '        connection.execute("BEGIN IMMEDIATE")\n        try:\n            yield\n'
        '            connection.execute("COMMIT")\n',
        "        try:\n            yield\n",
        "tests/stores/test_disk.py::test_a_put_that_breaks_off_leaves_what_was_there",
    ),
    # 12: an encoder changed under the same name
    Trap(
        "one group of vectors for all encoders",
        INDEX,
        "key = (partition.digest, encoder)",
        'key = (partition.digest, "")',
        "tests/semantic/test_index_encoders.py::test_entries_of_another_encoder_are_exact_only",
    ),
    Trap(
        "another dimension under the same fingerprint",
        INDEX,
        "if vectors is None or vectors.dimension != dimension:",
        "if vectors is None:",
        "tests/semantic/test_index.py::test_an_encoder_of_another_dimension_is_another_encoder",
    ),
    Trap(
        "an entry that another encoder has encoded anew",
        INDEX,
        "if entry is None or entry.group != contract or entry.encoder != encoder:",
        "if entry is None or entry.group != contract:",
        GONE_OR_CHANGED,
    ),
    Trap(
        "a snapshot of another encoder",
        "semantic/snapshots.py",
        "        if header[field] != value:",
        "        if False:",
        DAMAGED_SNAPSHOT,
    ),
    Trap(
        "other vectors under the same fingerprint",
        "semantic/known_encoders.py",
        "if before is None or _are_same(before[0], vectors):",
        "if True:",
        "tests/semantic/test_embed_known.py::test_entries_of_a_changed_encoder_are_never_compared",
    ),
    Trap(
        "a fingerprint of names, not of contents",
        "semantic/encoder_files.py",
        "path.relative_to(self.folder).as_posix().encode(), self.sha256(path).encode()]",
        "path.relative_to(self.folder).as_posix().encode()]",
        "tests/semantic/test_embed.py::test_the_fingerprint_changes_with_whatever_changes_the_vectors",
    ),
    # 13: a text beyond the encoder's window is cut off
    Trap(
        "cut off by the tokenizer, not counted",
        "semantic/tokenising.py",
        "        self._tokenizer.no_truncation()\n",
        "",
        WINDOW,
    ),
    Trap("cut off by the encoder", "semantic/embed.py", "if not self.fits_window(text):", "if False:", WINDOW),
    Trap(
        "a window that leaves no room for special tokens",
        "semantic/embed.py",
        "len(self._files.prompt) + len(text) + _SPARE_TOKENS <= window",
        "len(self._files.prompt) + len(text) <= window",
        "tests/semantic/test_embed.py::test_the_short_way_never_lets_through_what_the_tokenizer_would_cut",
    ),
    Trap(
        "questions that are not asked whether they fit",
        "semantic/question_encoder.py",
        "fits = [self.encoder.fits_window(text) for text in texts]",
        "fits = [True for text in texts]",
        "tests/core/test_pipeline.py::test_what_is_not_matched_by_meaning_is_still_matched_exactly",
    ),
    Trap(
        "entries encoded anew that do not fit",
        "semantic/reembed.py",
        " and encoder.fits_window(entry.question)",
        "",
        "tests/semantic/test_index_encoders.py::test_texts_that_the_new_encoder_cannot_take_are_left_as_they_are",
    ),
    # 18: eviction counts entries, memory grows by bytes
    Trap(
        "entries counted on disk",
        "stores/tenant.py",
        "excess = self.file.num_bytes() - max_bytes",
        "excess = self.file.num_entries() - max_bytes",
        f"{CONFORMANCE}::test_the_least_recently_used_entries_go_first",
    ),
    Trap(
        "entries counted in memory",
        "stores/memory.py",
        "while self._num_bytes[tenant] > max_bytes:",
        "while len(self._order[tenant]) > max_bytes:",
        f"{CONFORMANCE}::test_the_least_recently_used_entries_go_first",
    ),
    Trap(
        "every entry counted alike",
        "stores/codec.py",
        "return len(encoded) + ROW_BYTES",
        "return ROW_BYTES",
        f"{CONFORMANCE}::test_an_entry_above_the_whole_budget_is_refused_and_evicts_nobody",
    ),
    Trap(
        "bytes that a new vector adds not counted",
        "stores/tenant_file.py",
        "UPDATE Cache SET value = ?, size = ? WHERE",
        "UPDATE Cache SET value = ?, size = min(size, ?) WHERE",
        f"{CONFORMANCE}::test_a_vector_can_be_replaced_in_place",
    ),
    Trap(
        "groups of vectors counted in memory",
        INDEX,
        "excess = len(self._groups) > self._max_groups or num_bytes > self._max_bytes",
        "excess = len(self._groups) > self._max_groups",
        "tests/semantic/test_index.py::test_bytes_are_bounded_too",
    ),
    Trap(
        "rows of removed vectors that stay",
        "semantic/vectors_flat.py",
        "if not self.is_held and self.num_dead > max(_MIN_DEAD, len(self) // 3):",
        "if False:",
        "tests/semantic/test_index.py::test_rows_of_removed_vectors_are_given_back",
    ),
    Trap(
        "a journal without a bound",
        "semantic/group_files.py",
        " or self._num_noted_bytes >= self._bound()",
        "",
        "tests/semantic/test_index_journal.py::test_the_journal_is_bounded",
    ),
)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_the_test_of_a_trap_fails_when_its_fix_is_taken_out(copy: Path, trap: Trap) -> None:
    check(copy, trap)


def test_the_tests_pass_on_the_copy_as_it_is(copy: Path) -> None:
    check_unspoilt(copy, [trap.test for trap in TRAPS])
