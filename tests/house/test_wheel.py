"""The wheels hold all that they need, run where nothing else of Regard is, and can be built without a compiler."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from house import guards
from regard.tasks.common.catalogue import NAMES
from regard.tasks.common.looks import LOOKS

BUILD = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
NO_COMPILER = {"CXX": "/bin/false"}
BUNDLE = "regard/web/bundle/index.html"
MOST_BYTES = 9_000_000
TASKS = guards.ROOT / "packages" / "regard-tasks"
EVERY_LOOK = """
import sys
from regard.cli import main
from regard.tasks.common.looks import LOOKS
for name in LOOKS:
    sys.argv = ["regard", "look", name]
    try:
        main()
    except SystemExit as end:
        assert not end.code, name
    print("looked at", name)
"""


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


@dataclass(frozen=True)
class Environment:
    """A Python that has what Regard depends on, and nothing of Regard but the wheels that are installed into it."""

    folder: Path

    @classmethod
    def new(cls, folder: Path) -> "Environment":
        """What the running Python has is on the path; its editable installations, which need .pth files, are not."""
        venv.create(folder, symlinks=True)
        packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
        return cls(folder)

    def install(self, wheel: Path) -> None:
        """Install a wheel, and nothing that it asks for."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.folder / "bin" / "python")]
        options = ("--quiet", "--no-deps", "--no-index", "--no-warn-script-location")
        subprocess.run([*pip, "install", *options, str(wheel)], check=True)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in its folder, where no compiler is found and no network is asked."""
        settings = {"PATH": str(self.folder / "bin"), "HOME": str(self.folder), "HF_HUB_OFFLINE": "1"}
        program = str(self.folder / "bin" / command[0])
        return subprocess.run(
            [program, *command[1:]], capture_output=True, text=True, env=settings, cwd=self.folder
        )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the wheel is made of, so that nothing is built in this repository."""
    for file in (
        guards.ROOT / "pyproject.toml",
        guards.ROOT / "LICENSE",
        guards.ROOT / "README.md",
        guards.ROOT / ".gitignore",
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
    # The explorer's page is built and ignored by git, and goes along all the same.
    page = project / "src" / BUNDLE
    page.parent.mkdir(parents=True)
    page.write_text("built")
    wheel = build(project, tmp_path / "wheel", **NO_COMPILER)
    assert wheel.name.endswith("-py3-none-any.whl")
    expected = {path.relative_to(guards.SOURCE.parent).as_posix() for path in shipped()} | {BUNDLE}
    assert contents(wheel) == expected
    suffixes = {Path(name).suffix for name in expected}
    assert {".safetensors", ".json", ".md", ".html", ".css", ".js", ".typed"} <= suffixes


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on the PATH")
@pytest.mark.timeout(1800)
def test_the_wheels_run_in_an_empty_environment_without_a_compiler(project, tmp_path):
    # Pages need the front end, as it was built.
    built = (guards.SOURCE.parent / BUNDLE).parent
    shutil.copytree(built, project / built.relative_to(guards.ROOT))
    wheel = build(project, tmp_path / "wheel", REGARD_NATIVE="1")
    assert "-py3-none-" in wheel.name and not wheel.name.endswith("-any.whl")
    assert "regard/engines/native/_native.so" in contents(wheel)
    assert wheel.stat().st_size <= MOST_BYTES
    environment = Environment.new(tmp_path / "environment")
    environment.install(wheel)
    program = "from regard.engines import native; print(native.__file__, native.why_not(), native.build())"
    place, reason, build_in_use = environment.run("python", "-c", program).stdout.split()
    assert place.startswith(str(tmp_path)) and reason == "None" and build_in_use
    verified = environment.run("regard", "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "native" in verified.stdout
    looked = environment.run("regard", "look")
    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert (environment.folder / "regard-report.html").stat().st_size > 0

    wanting = environment.run("regard", "look", "translate")
    assert wanting.returncode == 2 and wanting.stderr == (
        "regard: this needs the package 'regard_tasks', which is not installed: pip install \"regard[tasks]\"\n"
    )
    environment.install(build(TASKS, tmp_path / "tasks"))
    every = environment.run("python", "-c", EVERY_LOOK)
    assert every.returncode == 0, every.stdout + every.stderr
    assert re.findall(r"^looked at (\w+)$", every.stdout, re.MULTILINE) == list(LOOKS)


def test_the_second_wheel_is_the_trained_models_and_nothing_else(tmp_path):
    wheel = build(TASKS, tmp_path)
    assert wheel.name.startswith("regard_tasks-") and wheel.name.endswith("-py3-none-any.whl")
    listed = {path.relative_to(TASKS / "src").as_posix() for path in guards.tracked_files(TASKS / "src")}
    assert contents(wheel) == listed
    assert [name for name in listed if name.endswith(".py")] == ["regard_tasks/__init__.py"]
    assert {name.split("/")[1] for name in listed} == {"__init__.py", *NAMES}


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
