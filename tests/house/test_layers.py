"""Each module imports only from the layers above it, and nothing goes round in a circle."""

import re
from pathlib import Path

from house import guards


def package(root: Path, **files: str) -> Path:
    """A package `regard` below `root`; `masks__algebra` names the module `masks.algebra`."""
    for name, text in files.items():
        path = root / "regard" / f"{name.replace('__', '/') if name != '__init__' else name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / "regard"


def test_layers_hold():
    assert guards.modules(guards.SOURCE), "no package found"
    assert guards.layer_faults(guards.SOURCE) == []


def test_the_documented_layers_are_the_enforced_ones():
    page = (guards.ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| \d+ \| (.*?) \|", page, re.MULTILINE)
    documented = [set(re.findall(r"`(\w+)/?`", row)) for row in rows]
    present = {guards.room(name) for name in guards.modules(guards.SOURCE)} - {"__init__", "__main__"}
    assert documented == [here for names in guards.LAYERS if (here := set(names) & present)]


def test_no_import_cycle():
    assert guards.cycle_faults(guards.SOURCE) == []


def test_an_upward_import_is_found(tmp_path):
    upward = package(
        tmp_path,
        masks__algebra="from regard import draw",
        draw="",
        spec="from .engines import walk",
        engines="",
    )
    assert guards.layer_faults(upward) == [
        "regard.masks.algebra:1: masks imports draw, which is in a later layer",
        "regard.spec:1: spec imports engines, which is in a later layer",
    ]


def test_a_late_upward_import_is_found(tmp_path):
    late = package(tmp_path, errors="def show():\n    import regard.draw\n", draw="", __init__="")
    assert guards.layer_faults(late) == ["regard.errors:2: errors imports draw, which is in a later layer"]


def test_importing_the_package_itself_is_found(tmp_path):
    whole = package(tmp_path, __init__="", analysis="import regard as rg")
    assert guards.layer_faults(whole) == [
        "regard.analysis:1: analysis imports __init__, which is in a later layer"
    ]


def test_a_module_without_a_layer_is_found(tmp_path):
    assert guards.layer_faults(package(tmp_path, utils="")) == ["regard.utils: 'utils' has no layer"]


def test_a_reader_of_the_reference_is_found(tmp_path):
    readers = package(
        tmp_path, reference="", engines__tiles="from ..reference import output", cli="import regard.reference"
    )
    assert guards.layer_faults(readers) == [
        "regard.engines.tiles:1: engines imports reference, which only defines correctness"
    ]


def test_a_cycle_is_found(tmp_path):
    circle = package(
        tmp_path, record="def f():\n    from regard import attention", attention="import regard.record"
    )
    assert sorted(guards.cycle_faults(circle)[0].split(" → ")[1:]) == ["regard.attention", "regard.record"]


def test_a_cycle_through_an_import_for_types_is_found(tmp_path):
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import regard.attention"
    assert guards.cycle_faults(package(tmp_path, record=typed, attention="import regard.record"))
