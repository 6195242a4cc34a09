"""The wheel holds the whole package, its data included, and can be built without a compiler."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from house import guards

BUILD = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")


def contents(project: Path, into: Path) -> set[str]:
    """The names of the files in the wheel that `project` builds, its metadata aside."""
    run = subprocess.run(
        [sys.executable, *BUILD, "--wheel-dir", str(into), str(project)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    (wheel,) = into.glob("*.whl")
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the wheel is made of, so that nothing is built in this repository."""
    for file in (
        guards.ROOT / "pyproject.toml",
        guards.ROOT / "LICENSE",
        guards.ROOT / "README.md",
        *shipped(),
    ):
        target = tmp_path / "project" / file.relative_to(guards.ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    return tmp_path / "project"


def shipped() -> list[Path]:
    """The files of the package, data included."""
    return [path for path in guards.tracked_files(guards.ROOT) if path.is_relative_to(guards.SOURCE)]


def test_the_wheel_holds_the_package_and_its_data(project, tmp_path):
    expected = {path.relative_to(guards.SOURCE.parent).as_posix() for path in shipped()}
    assert contents(project, tmp_path / "wheel") == expected
    suffixes = {Path(name).suffix for name in expected}
    assert {".safetensors", ".json", ".md", ".html", ".css", ".js", ".typed"} <= suffixes


def test_a_file_kept_out_of_the_wheel_is_found(project, tmp_path):
    settings = project / "pyproject.toml"
    shut = 'wheel.cmake = false\nwheel.exclude = ["regard/errors.py"]'
    settings.write_text(settings.read_text().replace("wheel.cmake = false", shut))
    assert "regard/errors.py" not in contents(project, tmp_path / "wheel")
