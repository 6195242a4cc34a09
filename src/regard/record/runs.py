"""Records of many runs and steps in one folder, whose tables are a Parquet dataset: `run=…/step=…/heads-….parquet`.

Each step is the folder of a record, as `Record.save` writes it: its table of heads, its tensors, and `record.json`, the
manifest with their sizes and digests. A step is written once. There is no file for all of them, so that writers
share nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import files
from regard.checks.arguments import shown, whole
from regard.errors import ArgumentError, RecordError, require
from regard.files import sealing
from regard.record import folder as record_folder
from regard.record.record import Record

if TYPE_CHECKING:
    from pandas import DataFrame

# A letter first, and nothing that would be quoted: every reader of such datasets takes it for the same string.
RUN = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")
PARTITION = re.compile(r"run=(?P<run>.+)/step=(?P<step>0|[1-9][0-9]*)")


@dataclass(frozen=True, order=True)
class Step:
    """A record among those of many runs.

    Attributes:
        run: name of the run. step: of its training, or any number that tells its records apart.
        path: the record's folder, for `regard.load`, `regard explore` and other tools.
    """

    run: str
    step: int
    path: Path


@dataclass(frozen=True)
class Runs:
    """A folder of records by run and step, which need not be there yet.

    Any number of processes may add steps at once, also of one run. A step that is there is never changed: of two
    processes that add the same one, the second gets an error. Looking at the folder meanwhile shows whole steps only.

    Attributes:
        folder: where they lie, in a file system that all writers share.

    Raises:
        ArgumentError: no path.

    Example:
        >>> import tempfile, torch, regard as rg
        >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        >>> text = torch.randn(1, 5, 8)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     runs = rg.record.Runs(folder)
        ...     with rg.watch(model) as record:
        ...         output = model(text, text, text)
        ...     path = runs.add(record, run="seed-0", step=100)
        ...     runs.heads[["run", "step", "head"]].values.tolist()
        [['seed-0', 100, 0], ['seed-0', 100, 1]]
    """

    folder: Path

    def __init__(self, folder: str | PathLike[str]) -> None:
        if not isinstance(folder, str | PathLike) or not str(folder):
            raise ArgumentError(f"folder must be a path, got {shown(folder)}")
        object.__setattr__(self, "folder", Path(folder))

    def add(self, record: Record, *, run: str, step: int) -> Path:
        """Write a record, whole or not at all; its folder.

        Args:
            record: what was seen. run: a name of letters, digits, dots, hyphens and underscores, a letter first.
            step: at least 0.

        Raises:
            RecordError: that step of that run is there already, or the folder cannot be written.
            ArgumentError: no record, or another name or number.
            MissingPackageError: safetensors or pyarrow is not installed.
        """
        if not isinstance(record, Record):
            raise ArgumentError(f"record must be a Record, got {shown(record)}")
        target = self._path(run, step)
        taken = f"{target}: step {step} of run {run!r} is there already, and steps are written once"
        # Before the work of a save; what counts is the renaming below.
        if target.exists():
            raise RecordError(taken)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with files.temporary(target.parent) as unfinished:
                record.save(unfinished / target.name)
                files.publish_folder(unfinished / target.name, target)
        except FileExistsError:
            raise RecordError(taken) from None
        except OSError as error:
            raise RecordError(f"{target}: cannot be written: {error.strerror or error}") from error
        return target

    def steps(self) -> list[Step]:
        """What is there now, by run and step; empty where the folder is not there."""
        there = []
        for path in self.folder.glob(f"run=*/step=*/{record_folder.RECORD}"):
            match = PARTITION.fullmatch(path.parent.relative_to(self.folder).as_posix())
            if match and RUN.fullmatch(match["run"]):
                there.append(Step(match["run"], int(match["step"]), path.parent))
        return sorted(there)

    def load(self, run: str, step: int, *, mapped: bool = False) -> Record:
        """One record; `mapped` as for `Record.load`.

        Raises:
            RecordError: it is not there, damaged or altered; names the file.
            ArgumentError: no such name or number can be.
        """
        return Record.load(self._path(run, step), mapped=mapped)

    @property
    def heads(self) -> DataFrame:
        """The tables of heads of all records, one below the other, with `run` and `step` as the first columns.

        They are read as they are on the disk, without comparing digests, as other tools read them.

        Raises:
            RecordError: there is no record, or a table cannot be read.
            MissingPackageError: pandas or pyarrow is not installed.
        """
        pandas = require("pandas", extra="table")
        require("pyarrow", extra="table")
        tables = []
        for item, seals in self._manifests():
            try:
                table = pandas.read_parquet(item.path / seals["heads"]["name"])
            # Whatever a damaged file makes of it.
            except Exception as error:
                raise RecordError(f"{item.path / seals['heads']['name']}: cannot be read: {error}") from error
            table.insert(0, "step", item.step)
            table.insert(0, "run", item.run)
            tables.append(table)
        if not tables:
            raise RecordError(f"{self.folder}: has no record of a run")
        return pandas.concat(tables, ignore_index=True)

    @property
    def manifest(self) -> DataFrame:
        """One row for each data file: `run`, `step`, `file` below the folder, `bytes`, `sha256`.

        Raises:
            RecordError: a `record.json` is damaged or altered; names it.
            MissingPackageError: pandas is not installed.
        """
        columns = ("run", "step", "file", "bytes", "sha256")
        rows = []
        for item, seals in self._manifests():
            for seal in seals.values():
                name = (item.path / seal["name"]).relative_to(self.folder).as_posix()
                rows.append((item.run, item.step, name, seal["bytes"], seal["sha256"]))
        return require("pandas", extra="table").DataFrame(rows, columns=columns)

    def check(self) -> int:
        """Hold every byte of every file against its digest; how many records there are.

        Raises:
            RecordError: the first that is damaged or altered; names the file.
        """
        for item, seals in self._manifests():
            for seal in seals.values():
                if reason := sealing.fault(item.path / seal["name"], seal):
                    raise RecordError(f"{item.path / seal['name']}: {reason}")
        return len(self.steps())

    def _manifests(self) -> Iterator[tuple[Step, dict[str, Any]]]:
        """Each step, and what its manifest says of its data files."""
        for item in self.steps():
            yield item, record_folder.manifest(item.path)

    def _path(self, run: str, step: int) -> Path:
        """The folder of a step."""
        if not isinstance(run, str) or not RUN.fullmatch(run):
            raise ArgumentError(
                "run must be a name of letters, digits, dots, hyphens and underscores, a letter first, "
                f"got {shown(run)}"
            )
        return self.folder / f"run={run}" / f"step={whole('step', step, 0)}"
