"""Where models and state lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachestack.errors import ConfigError
from cachestack.folders import home_folder, models_folder


def test_the_variables_win(tmp_path: Path) -> None:
    environ = {"CACHESTACK_MODELS": str(tmp_path / "m"), "CACHESTACK_HOME": str(tmp_path / "h")}
    assert models_folder(environ) == tmp_path / "m"
    assert home_folder(environ) == tmp_path / "h"
    assert list(tmp_path.iterdir()) == []  # asking creates nothing


@pytest.mark.parametrize("environ", [{}, {"CACHESTACK_MODELS": "", "CACHESTACK_HOME": ""}])
def test_unset_or_empty_means_the_platforms_folders(environ: dict[str, str]) -> None:
    assert models_folder(environ).parts[-2:] == ("cachestack", "models")
    assert home_folder(environ).name == "cachestack"
    assert models_folder(environ) != home_folder(environ) / "models"


def test_a_relative_folder_and_a_tilde_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert home_folder({"CACHESTACK_HOME": "here"}) == tmp_path / "here"
    assert home_folder({"CACHESTACK_HOME": "~/there"}) == tmp_path / "me/there"


def test_a_file_is_an_error_that_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"CACHESTACK_HOME=.*is a file"):
        home_folder({"CACHESTACK_HOME": str(tmp_path / "file")})
