"""A call that takes hours, in stretches of queries that are saved one by one, so that a killed run can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor

from regard import files
from regard.attention import asked, observed_by
from regard.checks.arguments import shown, whole
from regard.engines import choose
from regard.engines.protocol import Engine
from regard.errors import ArgumentError, RecordError
from regard.files import sealing
from regard.scale.described import described_column, described_mask, described_tensor, is_code
from regard.shapes import Sizes, sizes_of, statistics_dtype
from regard.spec import Spec, SpecArguments
from regard.spec.bias import Dense
from regard.statistics import offsets
from regard.statistics.observation import ROWS, Map, Observation, Top
from regard.statistics.table import Choice, Wanted

FORM = sealing.Form("regard-stretches", 1, "ledger of stretches")
LEDGER, SUMS = "ledger.json", "sums.safetensors"
# Pairs of one stretch where `stretch` is None: seconds of work.
PAIRS, STEP = 1 << 33, 256


def observe_long(
    query: Tensor,
    key: Tensor,
    value: Tensor | None = None,
    *,
    folder: str | PathLike[str],
    stretch: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    statistics: str | Choice | Iterable[str | Choice] | None = None,
    top: int = 0,
    map: int | None = None,
    engine: str = "auto",
    **spec: Unpack[SpecArguments],
) -> Observation:
    """`regard.observe` in stretches of queries, each saved to a folder when it is done; without gradients.

    The same call with the same folder resumes a killed run and gives the same bits. Besides the inputs and the result,
    memory holds one stretch and the sums over queries of each key. The result is that of `regard.observe`, up to the
    rounding of these sums.

    Args:
        query: `(batch, heads, queries, dim)`. key, value: as for `regard.observe`.
        folder: for this call alone. `ledger.json` says which call it is, `rows-….safetensors` hold the stretches,
            `sums.safetensors` the statistics of the keys and how many stretches are in them.
        stretch: queries in a stretch; None for 2^33 pairs of query and key, over all heads.
        progress: called with two numbers, stretches done and stretches in all, at the start and after each stretch.
        statistics, top, map, engine, **spec: as for `regard.observe`.

    Raises:
        RecordError: the folder holds another call, or is damaged; or it holds stretches of a call whose mask or bias is
            Python code, which cannot be compared.
        ShapeError, MaskError, ArgumentError, EngineError: as for `regard.observe`.

    Example:
        >>> import regard as rg, tempfile
        >>> query = key = torch.ones(1, 2, 6, 8)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     seen = observe_long(query, key, folder=folder, stretch=4, mask=rg.causal())
        >>> seen.allowed[0, 0].tolist()
        [1, 2, 3, 4, 5, 6]
    """
    # An empty text would mean the working directory, by mistake.
    if not isinstance(folder, str | PathLike) or not str(folder):
        raise ArgumentError(f"folder must be a string or a path, got {shown(folder)}")
    if progress is not None and not callable(progress):
        raise ArgumentError(f"progress must be a function of two counts, got {shown(progress)}")
    sizes = sizes_of(query, key, value)
    full = Spec.of(sizes, **spec).on(query.device)
    want = asked(sizes, full.offset, statistics, top, map, output=value is not None)
    query, key = query.detach(), key.detach()
    if value is not None:
        value = value.detach()
    with torch.no_grad():
        chosen = choose(engine, query, key, value, full, want)
        size = _stretch(stretch, sizes)
        settings = _settings(query, key, value, full, want, top, chosen, size)
        work = _Work(Path(folder), sizes, full, want, top, chosen, size)
        done, sums = work.opened(settings)
        if progress is not None:
            progress(done, work.count)
        while done < work.count:
            rows = work.rows(done)
            seen = observed_by(chosen, query[:, :, rows], key, value, work.spec(rows), want, top)
            sums = work.added(sums, seen, rows)
            files.write(
                work.path(done), sealing.packed(_tensors(seen), {}), error=RecordError, what="stretch"
            )
            done += 1
            # After the rows: what the sums say is done is there.
            content = sealing.packed(work.packed(sums, done), {"done": str(done)})
            files.write(work.folder / SUMS, content, error=RecordError, what="sums")
            if progress is not None:
                progress(done, work.count)
        return work.joined(query, sums)


@dataclass(frozen=True)
class _Sums:
    """What belongs to the keys, over the stretches that are done; received is summed in float64."""

    received: Tensor | None
    received_max: Tensor | None
    by_offset: Tensor | None
    map: Map | None


@dataclass(frozen=True)
class _Work:
    """One call and its folder."""

    folder: Path
    sizes: Sizes
    full: Spec
    want: Wanted
    top: int
    engine: Engine
    stretch: int

    @property
    def count(self) -> int:
        """How many stretches there are; one of an empty call."""
        return max(1, -(-self.sizes.queries // self.stretch))

    def rows(self, number: int) -> slice:
        """The queries of a stretch."""
        start = number * self.stretch
        return slice(start, min(start + self.stretch, self.sizes.queries))

    def path(self, number: int) -> Path:
        """The file of a stretch."""
        return self.folder / f"rows-{number:06}.safetensors"

    def spec(self, rows: slice) -> Spec:
        """The spec of some of the queries."""
        first, bias = self.full.offset + rows.start, self.full.bias
        if isinstance(bias, Dense):
            values = bias.values
            if values.shape[2] > 1:
                values = values[:, :, rows]
            bias = Dense(values, row=first)
        return replace(self.full, offset=first, bias=bias)

    def opened(self, settings: Mapping[str, Any]) -> tuple[int, _Sums]:
        """How many stretches are done, and the sums over them; a new folder gets its ledger."""
        try:
            held = sealing.read(self.folder / LEDGER, FORM, RecordError)
        except FileNotFoundError:
            if self.folder.is_dir() and any(self.folder.glob("rows-*.safetensors")):
                raise RecordError(f"{self.folder}: stretches without {LEDGER} cannot be resumed") from None
            content = sealing.document(FORM, settings, indent=2)
            files.write(self.folder / LEDGER, content, error=RecordError, what="ledger")
            held = dict(settings)
        for name, value in settings.items():
            if held.get(name) != value:
                raise RecordError(
                    f"{self.folder}: holds another call: {name} is {held.get(name)!r:.60} there and {value!r:.60} here"
                )
        if not (self.folder / SUMS).exists():
            return 0, self._blank()
        # Two functions of one name may compute different things: the stretches may be those of another one.
        if is_code(self.full.mask, self.full.bias):
            raise RecordError(
                f"{self.folder}: a call whose mask or bias is Python code cannot be resumed, as code cannot be "
                f"compared: start again in another folder"
            )
        tensors, metadata = _unpacked(self.folder / SUMS)
        done = int(metadata.get("done", "0"))
        # Sums that hold a stretch whose rows are gone cannot be completed.
        missing = [number for number in range(done) if not self.path(number).exists()]
        if missing:
            raise RecordError(f"{self.folder}: {self.path(missing[0]).name} is done and not there")
        return done, self._sums(tensors, done)

    def _blank(self) -> _Sums:
        sizes, want = self.sizes, self.want

        def zeros(wanted: bool, *last: int) -> Tensor | None:
            if not wanted:
                return None
            return torch.zeros(sizes.batch, sizes.heads, *last, dtype=torch.float64)

        return _Sums(
            received=zeros(want.received, sizes.keys),
            received_max=zeros(want.received_max, sizes.keys),
            by_offset=zeros(want.by_offset, sizes.diagonals),
            map=None,
        )

    def added(self, sums: _Sums, seen: Observation, rows: slice) -> _Sums:
        """The sums with those of one more stretch; sums over the keys are added in place."""
        if sums.received is not None and seen.received is not None:
            sums.received.add_(seen.received.cpu())
        if sums.received_max is not None and seen.received_max is not None:
            torch.maximum(sums.received_max, seen.received_max.cpu().double(), out=sums.received_max)
        if sums.by_offset is not None and seen.by_offset is not None:
            offsets.place(sums.by_offset, seen.by_offset.cpu(), rows.start, 0)
        picture = seen.map
        if picture is not None:
            cpu = {name: getattr(picture, name).cpu() for name in ("total", "peak", "rows")}
            picture = replace(picture, **cpu)
        if sums.map is not None and picture is not None:
            picture = sums.map.merge(picture)
        return replace(sums, map=picture)

    def packed(self, sums: _Sums, done: int) -> dict[str, Tensor]:
        """The sums as tensors with names."""
        # A call without column statistics has a file that says how far it is, too.
        tensors = {"done": torch.tensor([done])}
        tensors |= {
            n: t for n in ("received", "received_max", "by_offset") if (t := getattr(sums, n)) is not None
        }
        if sums.map is not None:
            tensors |= {f"map.{name}": getattr(sums.map, name) for name in ("total", "peak", "rows")}
        return tensors

    def _sums(self, tensors: Mapping[str, Tensor], done: int) -> _Sums:
        """What `packed` took apart."""
        picture = None
        if "map.total" in tensors:
            picture = Map(
                total=tensors["map.total"],
                peak=tensors["map.peak"],
                rows=tensors["map.rows"],
                cell=self.want.cell,
                queries=min(done * self.stretch, self.sizes.queries),
                keys=self.sizes.keys,
                offset=self.full.offset,
            )
        return _Sums(tensors.get("received"), tensors.get("received_max"), tensors.get("by_offset"), picture)

    def joined(self, query: Tensor, sums: _Sums) -> Observation:
        """The observation of all queries, from the files."""
        whole: dict[str, Tensor] = {}
        for number in range(self.count):
            rows = self.rows(number)
            for name, part in _unpacked(self.path(number))[0].items():
                if name not in whole:
                    shape = list(part.shape)
                    shape[2] = self.sizes.queries
                    whole[name] = part.new_empty(shape)
                whole[name][:, :, rows] = part
        whole = {name: tensor.to(query.device) for name, tensor in whole.items()}
        exact = statistics_dtype(query.dtype)
        columns: dict[str, Any] = {}
        for name in ("received", "received_max", "by_offset"):
            tensor = getattr(sums, name)
            if tensor is not None:
                columns[name] = tensor.to(query.device, exact)
        if sums.map is not None:
            moved = {name: getattr(sums.map, name).to(query.device) for name in ("total", "peak", "rows")}
            columns["map"] = replace(sums.map, **moved)
        if "top.keys" in whole:
            columns["top"] = Top(whole.pop("top.weights"), whole.pop("top.keys"))
        if "attends" in whole:
            columns["attends"] = whole.pop("attends").bool()
        parameters = dict(self.want.parameters)
        if self.full.sink_logit is not None:
            parameters["sink_logit"] = True
        groups = {name.removeprefix("group:"): t for name, t in whole.items() if name.startswith("group:")}
        rest: dict[str, Any] = {n: t for n, t in whole.items() if not n.startswith("group:")}
        return Observation(groups=groups, engine=self.engine.name, parameters=parameters, **rest, **columns)


def _tensors(seen: Observation) -> dict[str, Tensor]:
    """What belongs to the queries, by name."""
    tensors = {name: getattr(seen, name) for name in (*ROWS, "output")}
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    tensors |= {f"group:{name}": tensor for name, tensor in seen.groups.items()}
    if seen.top is not None:
        tensors |= {"top.weights": seen.top.weights, "top.keys": seen.top.keys}
    if seen.attends is not None:
        # Of bools there are none in sealed files.
        tensors["attends"] = seen.attends.to(torch.int16)
    return tensors


def _unpacked(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        return sealing.unpacked(path.read_bytes())
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise RecordError(f"{path}: {error}") from None


def _stretch(stretch: int | None, sizes: Sizes) -> int:
    """Queries of a stretch."""
    if stretch is not None:
        return whole("stretch", stretch, 1)
    pairs = max(1, sizes.batch * sizes.heads * sizes.keys)
    return max(STEP, PAIRS // pairs // STEP * STEP)


def _settings(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    full: Spec,
    want: Wanted,
    top: int,
    engine: Engine,
    stretch: int,
) -> dict[str, Any]:
    """What makes a call the same call, as JSON holds it."""
    tensors = {
        "query": query,
        "key": key,
        "value": value,
        "bias": full.parameter,
        "sink_logit": full.sink_logit,
    }
    return {
        "stretch": stretch,
        "engine": engine.name,
        "offset": full.offset,
        "scale": full.scale,
        "softcap": full.softcap,
        "mask": described_mask(full.mask),
        "bias_kind": type(full.bias).__name__,
        "statistics": sorted(want.names),
        "columns": sorted(map(described_column, want.columns)),
        "top": top,
        "cell": want.cell,
        **{name: described_tensor(tensor) for name, tensor in tensors.items()},
    }
