"""The rules of the house as functions: each reads a tree of files and returns the faults it found there.

Knows Python's syntax tree and nothing of what Regard computes. The tests beside it run every function twice:
on this repository, where it must find nothing, and on a small bad tree, where it must find the fault.
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "regard"

LAYERS = (
    ("errors", "checks", "shapes", "files", "html"),
    ("masks",),
    ("spec",),
    ("statistics",),
    ("reference",),
    ("engines",),
    ("products", "attention"),
    ("scale",),
    ("record",),
    ("watch",),
    ("survey",),
    ("nn", "models", "training"),
    ("analysis", "bench"),
    ("web",),
    ("draw", "page", "embedded"),
    ("tasks", "learn"),
    ("explorer",),
    ("cli", "__main__", "__init__"),
)
READS_REFERENCE = {"cli"}  # `regard verify`; nobody else inside the package
LIGHT = {"regard", "torch", "numpy"} | sys.stdlib_module_names
# Are themselves imported late: by the command, and where `rg.models` is asked for.
IMPORTS_EARLY = {"cli", "models", "explorer"}
KERNELS = ".engines.triton.kernels"  # written in Triton's language, and imported only where one is launched
STORE = ".learn.store"  # tables are classes of SQLAlchemy; imported only where progress is asked for

MEDIAN_LINES, MAX_LINES, MAX_ARGUMENTS, MAX_PUBLIC_NAMES = 130, 400, 12, 20


@dataclass(frozen=True)
class Import:
    """One imported module, resolved to its absolute dotted name."""

    name: str
    line: int
    late: bool  # inside a function: runs when that is called
    typing: bool  # under `if TYPE_CHECKING:`: never runs


# --- reading a package -------------------------------------------------------------------------------------


def python_files(root: Path) -> list[Path]:
    """Every Python file below `root`, in a fixed order."""
    return sorted(path for path in root.rglob("*.py") if "__pycache__" not in path.parts)


def modules(package: Path) -> dict[str, Path]:
    """Dotted name → file, for every module of a package; a package's name stands for its `__init__`."""
    found = {}
    for path in python_files(package):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: Mapping[str, Path]) -> list[Import]:
    """What one module imports, relative imports resolved, `from package import submodule` followed.

    `require("pandas", …)` and `importlib.import_module("pandas")` count as the late imports that they are.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: list[Import] = []

    def visit(node: ast.AST, late: bool, typing: bool) -> None:
        for target in _targets(node, package, known):
            found.append(Import(target, node.lineno, late, typing))  # type: ignore[attr-defined]
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        guarded = node.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) else []
        for child in ast.iter_child_nodes(node):
            visit(child, late, typing or child in guarded)

    visit(ast.parse(path.read_text()), False, False)
    return found


def _targets(node: ast.AST, package: str, known: Mapping[str, Path]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            parents = package.split(".")[: len(package.split(".")) - level + 1] if level else []
            base = ".".join([*parents, *([module] if module else [])])
            for alias in names:
                submodule = f"{base}.{alias.name}"
                yield submodule if submodule in known else base
        case ast.Call(
            func=ast.Name(id="require") | ast.Attribute(attr="import_module" | "find_spec" | "importorskip"),
            args=[first, *_],
        ):
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value


# --- layers ------------------------------------------------------------------------------------------------


def room(module: str) -> str:
    """The part of the package that a module belongs to: `regard.masks.algebra` is in `masks`."""
    return [*module.split("."), "__init__"][1]


def layer_faults(package: Path) -> list[str]:
    """Imports that go against the layers, modules that have none, and readers of the reference."""
    level = {name: number for number, names in enumerate(LAYERS) for name in names}
    known = modules(package)
    faults = [f"{name}: {room(name)!r} has no layer" for name in known if room(name) not in level]
    for name, path in known.items():
        for item in imports(name, path, known):
            if item.name.split(".")[0] != package.name:
                continue
            here, there = room(name), room(item.name)
            where = f"{name}:{item.line}: {here} imports {there}"
            if level.get(there, 0) > level.get(here, len(LAYERS)):
                faults.append(f"{where}, which is in a later layer")
            if there == "reference" and here not in READS_REFERENCE | {"reference"}:
                faults.append(f"{where}, which only defines correctness")
    return faults


def cycle_faults(package: Path) -> list[str]:
    """The first cycle among the imports, late ones and those for types included."""
    known = modules(package)
    graph = {
        name: {item.name for item in imports(name, path, known) if item.name in known}
        for name, path in known.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [" → ".join(reversed(error.args[1]))]
    return []


# --- dependencies ------------------------------------------------------------------------------------------


def early_import_faults(package: Path) -> list[str]:
    """Imports of anything but torch, numpy and the standard library that run when a module is imported."""
    known = modules(package)
    return [
        f"{name}:{item.line}: imports {item.name} early; use require() inside the function that needs it"
        for name, path in known.items()
        if room(name) not in IMPORTS_EARLY and KERNELS not in name and STORE not in name
        for item in imports(name, path, known)
        if not item.late and not item.typing and item.name.split(".")[0] not in LIGHT
    ]


def distribution(module: str) -> str:
    """The name under which a module is installed."""
    top = module.split(".")[0]
    others = {
        "sklearn": "scikit-learn",
        "PIL": "pillow",
        "yaml": "pyyaml",
        "mlflow": "mlflow-skinny",
        "open_clip": "open-clip-torch",
    }
    return others.get(top, top).replace("_", "-").lower()


def declared(pyproject: Path) -> dict[str, set[str]]:
    """Extra → the distributions that it brings, extras of extras included; `""` is the core."""
    project = tomllib.loads(pyproject.read_text())["project"]
    listed = {"": project["dependencies"], **project.get("optional-dependencies", {})}

    def expand(extra: str) -> set[str]:
        names: set[str] = set()
        for requirement in listed[extra]:
            name, inner = re.match(r"([\w.-]+)(?:\[(.*?)\])?", requirement).groups()  # type: ignore[union-attr]
            parts = [part.strip() for part in (inner or "").split(",") if part.strip()]
            names |= set().union(*map(expand, parts)) if name == project["name"] else {distribution(name)}
        return names

    return {extra: expand(extra) for extra in listed}


def grouped(pyproject: Path) -> set[str]:
    """The distributions that only work on the project needs: those of all dependency groups."""
    groups = tomllib.loads(pyproject.read_text())["dependency-groups"]
    return {distribution(re.split(r"[^\w.-]", one)[0]) for group in groups.values() for one in group}


def undeclared_faults(files: list[Path], named: set[str], local: set[str]) -> list[str]:
    """Third-party imports that are not `named` as dependencies; `local` are modules of this repository."""
    return [
        f"{path}:{item.line}: imports {item.name}, which pyproject.toml does not name"
        for path in files
        for item in imports(path.stem, path, {})
        if (top := item.name.split(".")[0]) not in local | sys.stdlib_module_names
        and distribution(top) not in named
    ]


def unused_faults(files: list[Path], named: set[str]) -> list[str]:
    """Distributions that are `named` as dependencies and that no file imports."""
    used = {distribution(item.name) for path in files for item in imports(path.stem, path, {})}
    return [f"{name}: named in pyproject.toml, imported nowhere" for name in sorted(named - used)]


def wrong_extra_faults(package: Path, pyproject: Path) -> list[str]:
    """Calls `require("pandas", extra="table")` whose extra does not exist or does not bring the package."""
    extras, faults = declared(pyproject), []
    for name, path in modules(package).items():
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="require"), args=[ast.Constant(value=str(wanted))]):
                    extra = next(
                        (k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)), ""
                    )
                    if distribution(wanted) not in extras.get(extra, set()):
                        faults.append(f"{name}:{node.lineno}: extra {extra!r} does not bring {wanted}")
    return faults


def newly_loaded(module: str, *, after: str, path: Path | None = None) -> set[str]:
    """The third-party packages that a fresh interpreter loads for `module` beyond those of `after`."""
    program = (
        f"import sys; sys.path[:0] = {[str(path)] if path else []!r}\n"
        f"import {after}; before = set(sys.modules)\n"
        f"import {module}; print(*(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    tops = {name.split(".")[0] for name in run.stdout.split()}
    return tops - sys.stdlib_module_names - set(module.split(".")[:1])


def public_names(module: ModuleType) -> list[str]:
    """What `from module import *` gives, sub-packages aside."""
    return [name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)]


# --- budgets -----------------------------------------------------------------------------------------------


def size_faults(files: list[Path]) -> list[str]:
    """Files that are too long, and a median that has grown too large."""
    lines = {path: len(path.read_text().splitlines()) for path in files}
    faults = [
        f"{path}: {count} lines, at most {MAX_LINES}" for path, count in lines.items() if count > MAX_LINES
    ]
    if lines and (median := statistics.median(lines.values())) > MEDIAN_LINES:
        faults.append(f"median file of {median:g} lines, at most {MEDIAN_LINES}")
    return faults


def argument_faults(files: list[Path]) -> list[str]:
    """Functions of more than twelve arguments, `self` and `cls` not counted."""
    faults = []
    for path, node in _nodes(files):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            given = node.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            count = sum(a is not None and a.arg not in {"self", "cls"} for a in every)
            if count > MAX_ARGUMENTS:
                faults.append(f"{path}:{node.lineno}: {count} arguments, at most {MAX_ARGUMENTS}")
    return faults


def forbidden_code_faults(files: list[Path]) -> list[str]:
    """`assert False`, `eval` and `exec` of anything but an empty text, and every way to pickle."""
    picklers = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
    faults = []
    for path, node in _nodes(files):
        match node:
            case ast.Assert(test=ast.Constant(value=value)) if not value:
                what = "assert False"
            case ast.Call(func=ast.Name(id="exec"), args=[ast.Constant(value="")]):
                continue
            case ast.Call(func=ast.Name(id="eval" | "exec" as what)):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="load" | "save" as verb)):
                what = f"torch.{verb} (pickles)"
            case ast.Import(names=names) if used := picklers & {alias.name.split(".")[0] for alias in names}:
                what = "import " + ", ".join(sorted(used))
            case ast.ImportFrom(module=str(module), level=0) if module.split(".")[0] in picklers:
                what = f"import {module}"
            case _:
                continue
        faults.append(f"{path}:{node.lineno}: {what}")
    return faults


WRITERS = {"write_text", "write_bytes", "savefig", "save_file", "save_pretrained", "imsave"}
WRITERS |= {"to_parquet", "to_csv"}
WHOLE = {"replacing", "replacing_all", "temporary", "BytesIO"}  # what these give may be written to in place


def plain_write_faults(files: list[Path]) -> list[str]:
    """Files that are written in place, where a full disk or an interrupt leaves a part of them."""
    faults = []
    for path in files:
        tree = ast.parse(path.read_text())
        fresh = {name for node in ast.walk(tree) for name in _fresh(node)}
        for node in ast.walk(tree):
            names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
            if isinstance(node, ast.Call) and (what := _written(node)) and not names & fresh:
                faults.append(f"{path}:{node.lineno}: {what} in place; take regard.files")
    return faults


def _fresh(node: ast.AST) -> set[str]:
    """The names that a node gives to what is not finished yet, and to buffers."""
    pairs: list[tuple[ast.AST, ast.AST | None]] = []
    match node:
        case ast.With(items=items):
            pairs = [(item.context_expr, item.optional_vars) for item in items]
        case ast.Assign(value=value, targets=[target]):
            pairs = [(value, target)]
    return {
        target.id
        for value, target in pairs
        if isinstance(value, ast.Call) and isinstance(target, ast.Name)
        if getattr(value.func, "attr", getattr(value.func, "id", "")) in WHOLE
    }


def _written(call: ast.Call) -> str | None:
    """What a call writes with, if it writes a file."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    modes += [
        word.value.value
        for word in call.keywords
        if word.arg == "mode" and isinstance(word.value, ast.Constant)
    ]
    if name == "open" and any(
        re.fullmatch(r"[rwaxbt+]{1,3}", mode) and set(mode) & set("wax+") for mode in modes
    ):
        return "open"
    return name if name in WRITERS else None


def _nodes(files: list[Path]) -> Iterator[tuple[Path, ast.AST]]:
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            yield path, node


# --- cleanliness -------------------------------------------------------------------------------------------

# Written as patterns that do not match themselves, so that this file passes too.
UNCLEAN = {
    "absolute path of one machine": r"(?<![\w.~<>/])/(?:w[o]rk|h[o]me|r[o]ot|U[s]ers)/\w",
    "host of a package registry": r"\b(?:p[y]pi[.]org|pythonh[o]sted[.]|registry[.]n[p]mjs"
    r"|deb[.]d[e]bian|download[.]p[y]torch)",
    "word of the making": r"(?i)\b(?:cla[u]de|anthr[o]pic|chat ?g[p]t|co[p]ilot"
    r"|a[i][- ](?:assist|generat|writ)\w*|sub-?a[g]ents?|this w[o]rkplace|device m[a]chine)",
    "merge marker": r"(?m)^(?:<{7}|>{7}) ",
}


def tracked_files(root: Path) -> list[Path]:
    """The files that git tracks or would track below `root`."""
    listing = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split("\0")
    return [path for name in sorted(set(names)) if name and (path := root / name).is_file()]


def text_files(root: Path) -> list[Path]:
    """Those of the tracked files that hold text."""
    return [path for path in tracked_files(root) if b"\0" not in path.read_bytes()[:8192]]


def unclean_faults(files: list[Path]) -> list[str]:
    """Absolute paths, registry hosts and other words that have no place in the project."""
    faults = []
    for path in files:
        text = path.read_text(errors="replace")
        for what, pattern in UNCLEAN.items():
            for found in re.finditer(pattern, text):
                line = text.count("\n", 0, found.start()) + 1
                faults.append(f"{path}:{line}: {what}: {found.group().strip()!r}")
    return faults
