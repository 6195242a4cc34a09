"""Files stay short, signatures stay narrow, and some code is never written."""

from types import ModuleType

import regard
from house import guards

FOLDERS = ("src", "tests", "scripts", "benchmarks")
FILES = [path for folder in FOLDERS for path in guards.python_files(guards.ROOT / folder)]
SHIPPED = guards.python_files(guards.SOURCE)


def test_files_are_short():
    assert guards.size_faults(FILES) == []


def test_signatures_are_narrow():
    assert guards.argument_faults(FILES) == []


def test_forbidden_code_is_absent():
    assert guards.forbidden_code_faults(SHIPPED) == []


def test_few_names_at_the_top():
    assert len(guards.public_names(regard)) <= guards.MAX_PUBLIC_NAMES


def test_long_files_are_found(tmp_path):
    long, short = tmp_path / "long.py", tmp_path / "short.py"
    long.write_text("\n" * 401)
    short.write_text("\n" * 130)
    assert guards.size_faults([long, short]) == [
        f"{long}: 401 lines, at most 400",
        "median file of 265.5 lines, at most 130",
    ]
    assert guards.size_faults([short]) == []


def test_a_wide_signature_is_found(tmp_path):
    file = tmp_path / "wide.py"
    names = ", ".join(f"a{i}" for i in range(11))
    file.write_text(f"def fits(self, {names}, *, last): ...\n\nasync def wide({names}, *rest, **more): ...\n")
    assert guards.argument_faults([file]) == [f"{file}:3: 13 arguments, at most 12"]


def test_forbidden_code_is_found(tmp_path):
    bad = {
        "assert False": "assert False",
        "eval": "eval('1')",
        "exec": "def f():\n    exec('1')",
        "import pickle": "import json, pickle",
        "import dill.source": "from dill.source import getsource",
        "torch.load (pickles)": "torch.load('x')",
    }
    for what, text in bad.items():
        file = tmp_path / "bad.py"
        file.write_text(text)
        assert [fault.split(": ", 1)[1] for fault in guards.forbidden_code_faults([file])] == [what]
    file.write_text("model.eval()\nassert x\nnumpy.load(x)\nfrom .pickle import y")
    assert guards.forbidden_code_faults([file]) == []


def test_public_names_leave_sub_packages_aside():
    module = ModuleType("many")
    module.__all__ = ["nn", "attend"]
    module.nn, module.attend = ModuleType("nn"), len
    assert guards.public_names(module) == ["attend"]
