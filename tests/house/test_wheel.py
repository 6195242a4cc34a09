"""The wheel holds the whole package, its data and its library included, and can be built without a compiler."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from house import guards

BUILD = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")


NO_COMPILER = {"CXX": "/bin/false"}


def build(project: Path, into: Path, **environment: str) -> Path:
    """The wheel that `project` builds."""
    run = subprocess.run(
        [sys.executable, *BUILD, "--wheel-dir", str(into), str(project)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    (wheel,) = into.glob("*.whl")
    return wheel


def contents(wheel: Path) -> set[str]:
    """The names of the files in a wheel, its metadata aside."""
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the wheel is made of, so that nothing is built in this repository."""
    for file in (
        guards.ROOT / "pyproject.toml",
        guards.ROOT / "LICENSE",
        guards.ROOT / "README.md",
        *shipped(),
        *sources(),
    ):
        target = tmp_path / "project" / file.relative_to(guards.ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    return tmp_path / "project"


def shipped() -> list[Path]:
    """The files of the package, data included."""
    return [path for path in guards.tracked_files(guards.ROOT) if path.is_relative_to(guards.SOURCE)]


def sources() -> list[Path]:
    """The files that the native engine is built from."""
    return [path for path in guards.tracked_files(guards.ROOT) if path.is_relative_to(guards.ROOT / "native")]


def test_without_a_compiler_the_wheel_is_pure_python_and_whole(project, tmp_path):
    (project / "src/regard/engines/native/_native.so").write_text("left by an older build")
    wheel = build(project, tmp_path / "wheel", **NO_COMPILER)
    assert wheel.name.endswith("-py3-none-any.whl")
    expected = {path.relative_to(guards.SOURCE.parent).as_posix() for path in shipped()}
    assert contents(wheel) == expected
    suffixes = {Path(name).suffix for name in expected}
    assert {".safetensors", ".json", ".md", ".html", ".css", ".js", ".typed"} <= suffixes


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on the PATH")
@pytest.mark.timeout(900)
def test_with_a_compiler_the_wheel_brings_the_library_to_machines_that_have_none(project, tmp_path):
    wheel = build(project, tmp_path / "wheel", REGARD_NATIVE="1")
    assert "-py3-none-" in wheel.name and not wheel.name.endswith("-any.whl")
    assert "regard/engines/native/_native.so" in contents(wheel)
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    program = (
        "import sys; sys.meta_path = [f for f in sys.meta_path if isinstance(f, type)];"  # no editable installation
        "from regard.engines import native; print(native.__file__, native.why_not(), native.build())"
    )
    environment = {"PYTHONPATH": str(tmp_path / "installed"), "PATH": str(tmp_path)}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    place, reason, build_in_use = run.stdout.split()
    assert place.startswith(str(tmp_path)) and reason == "None" and build_in_use


def test_a_build_that_must_not_fail_fails_aloud(project, tmp_path):
    with pytest.raises(AssertionError, match="CMake configuration failed"):
        build(project, tmp_path / "wheel", REGARD_NATIVE="1", **NO_COMPILER)


def test_the_source_distribution_holds_the_native_sources(project, tmp_path):
    program = f"from scikit_build_core.build import build_sdist; build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=project, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {path.relative_to(guards.ROOT).as_posix() for path in (*sources(), *shipped())} <= names


def test_a_file_kept_out_of_the_wheel_is_found(project, tmp_path):
    settings = project / "pyproject.toml"
    kept_out = 'wheel.exclude = ["regard/errors.py", '
    settings.write_text(settings.read_text().replace("wheel.exclude = [", kept_out))
    assert "regard/errors.py" not in contents(build(project, tmp_path / "wheel", **NO_COMPILER))
