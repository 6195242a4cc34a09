"""`import regard` needs torch and numpy, and loads nothing else."""

import subprocess
import sys

from house import guards


def test_import_regard_loads_only_torch_and_numpy():
    assert guards.newly_loaded("regard", after="torch, numpy") == set()


def test_exercises_load_no_database():
    assert {"sqlalchemy", "alembic"}.isdisjoint(guards.newly_loaded("regard.learn", after="torch, numpy"))


def test_nothing_heavy_is_imported_early():
    assert guards.early_import_faults(guards.SOURCE) == []


def test_looking_at_the_embedded_model_loads_little(tmp_path):
    code = f"""
import os, sys
os.chdir({str(tmp_path)!r})
sys.argv = ["regard", "look"]
try:
    __import__("regard.cli").cli.main()
except SystemExit:
    pass
print("loaded", *sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown, _, loaded = run.stdout.rpartition("loaded")
    assert "The report" in shown
    # Each of them takes longer to import than the model to run.
    assert {"transformers", "pandas", "pyarrow", "matplotlib", "sympy", "torch._dynamo"}.isdisjoint(
        loaded.split()
    )


def test_a_heavy_import_is_found(tmp_path):
    (tmp_path / "heavy.py").write_text("")
    (tmp_path / "light.py").write_text("import json, numpy, heavy")
    assert guards.newly_loaded("light", after="numpy", path=tmp_path) == {"heavy"}


def test_an_early_import_is_found(tmp_path):
    package = tmp_path / "regard"
    package.mkdir()
    (package / "draw.py").write_text("import torch\nimport matplotlib.pyplot\ndef f():\n    import pandas\n")
    (package / "cli.py").write_text("import typer")
    assert guards.early_import_faults(package) == [
        "regard.draw:2: imports matplotlib.pyplot early; use require() inside the function that needs it"
    ]
