"""What is imported is named in `pyproject.toml`, and what is named there is imported."""

from house import guards

PYPROJECT = guards.ROOT / "pyproject.toml"
LOCAL = {"regard", "house", "conftest", "benchmarks", "lessons", "scripts"}
RUN_NOT_IMPORTED = {
    *("ruff", "mypy", "pre-commit", "pytest-timeout", "pytest-xdist"),
    *("scikit-build-core", "cmake", "ninja"),
}


def outside() -> list:
    """The Python files beside the package."""
    return [
        path
        for name in ("tests", "scripts", "benchmarks", "lessons")
        for path in guards.python_files(guards.ROOT / name)
    ]


def local() -> set[str]:
    """The modules that scripts and tests import from their own folders."""
    return LOCAL | {name for path in outside() for name in (path.stem, path.parent.name)}


def test_the_package_imports_what_users_are_told_to_install():
    extras = guards.declared(PYPROJECT)
    named = set().union(*(names for extra, names in extras.items() if extra not in {"test", "dev", "all"}))
    assert guards.undeclared_faults(guards.python_files(guards.SOURCE), named, LOCAL) == []


def test_tests_and_scripts_import_what_is_named():
    named = set().union(*guards.declared(PYPROJECT).values())
    assert guards.undeclared_faults(outside(), named, local()) == []


def test_nothing_is_named_in_vain():
    named = set().union(*guards.declared(PYPROJECT).values()) - RUN_NOT_IMPORTED
    assert guards.unused_faults([*guards.python_files(guards.SOURCE), *outside()], named) == []


def test_install_hints_name_the_right_extra():
    assert guards.wrong_extra_faults(guards.SOURCE, PYPROJECT) == []


def test_everything_named_is_pinned():
    pinned = {
        guards.distribution(line.split("==")[0])
        for line in (guards.ROOT / "constraints.txt").read_text().split()
    }
    assert set().union(*guards.declared(PYPROJECT).values()) - pinned == set()


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
    assert extras["draw"] | extras["record"] | extras["hf"] < extras["look"] < extras["test"] < extras["all"]
