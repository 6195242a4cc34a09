"""The process in which `regard explore` runs models: `python -m regard.cli.worker`, started by the explorer alone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Literal

from regard import embedded
from regard.cli import models, reading
from regard.cli.models import Reader
from regard.explorer import child
from regard.explorer.worker import Report
from regard.record import Record
from regard.watch import Plan
from regard.web.next_tokens import NextTokens, logits_of, next_tokens

# Bytes of vectors up to which they are kept, so that every single weight can be seen.
VECTORS = 4 << 30
# Seconds between two reports.
EVERY = 0.2
# Characters of the text that a record carries.
TEXT = 2000

Source = tuple[str, str]


class Readers:
    """Models that were loaded; the last one stays, so that it reads a second text at once."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        self._last: tuple[Source, Reader] | None = None

    def __getitem__(self, source: Source) -> Reader:
        if self._last is None or self._last[0] != source:
            # Before another one is loaded, as there may be no room for both.
            self._last = None
            self._last = source, self._load(*source)
        return self._last[1]

    def _load(self, kind: str, source: str) -> Reader:
        if kind == "embedded":
            return models.load_embedded(self._device)
        return models.load(source, self._device)


def run(request: dict[str, Any], report: Report, readers: Readers) -> dict[str, Any]:
    """Run a model and save the record; the answer has its text, a message, and code that makes the record again."""
    kind, source, text = request["kind"], request["source"], request["text"]
    # A task brings its own model, example and record.
    if kind == "task":
        record, answer = _of_task(source, text, request["image"], report)
    else:
        report(0.0, "loading the model")
        text = text or embedded.TEXT
        reader, changed = readers[kind, source], request.get("changed")
        record, following = _of_reader(reader, text, changed, report)
        record.info["text"] = text[:TEXT]
        answer = {"text": text, "code": code(reader, kind, text, changed)}
        if following is not None:
            following.save(Path(request["next"]))
    # The server maps it from there: tensors never travel through a pipe.
    report(None, "saving the record")
    record.save(request["folder"])
    return answer


def _of_reader(
    reader: Reader, text: str, wanted: dict[str, Any] | None, report: Report
) -> tuple[Record, NextTokens | None]:
    encoded = reader.encode(text)
    count = encoded["input_ids"].shape[1]
    report(0.0, "preparing")
    # Without the changes, those of an encoder–decoder's reply among them: both runs read the same tokens.
    inputs = reader.inputs(encoded)
    unchanged = None
    watching = reading.watched(reader, inputs, _keep(reader, count))
    if wanted is not None:
        report(0.0, "reading without the changes")
        unchanged = logits_of(reader.run(inputs))
        changes = Plan.load(wanted["plan"])
        watching = reading.changed(reader, inputs, _keep(reader, count), changes, wanted["layers"])
    with watching as record:
        over = threading.Event()

        def follow() -> None:
            while not over.wait(EVERY):
                # The last layer is still at work when its call is seen.
                progress = None
                if reader.layers:
                    progress = min(len(record) / (reader.layers + 1), 1.0)
                report(progress, f"reading {count} tokens, {len(record)} attention calls")

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            output = reader.run(inputs)
        finally:
            over.set()
            thread.join()
    record.info["model"] = reader.name
    logits = logits_of(output)
    if logits is None or not reader.predicts:
        return record, None
    return record, next_tokens(logits, reader.piece, unchanged)


def _keep(reader: Reader, count: int) -> Literal["statistics", "vectors"]:
    """Whether there is room for the vectors of all layers, by which every weight can be had."""
    config = reader.model.config
    size = int(getattr(config, "hidden_size", 0) or getattr(config, "d_model", 0) or 0)
    # Query, key and value in single precision.
    if 3 * 4 * size * count * max(reader.layers, 1) <= VECTORS:
        return "vectors"
    return "statistics"


def _of_task(task: str, text: str, image: str | None, report: Report) -> tuple[Record, dict[str, Any]]:
    from regard.tasks.common.looks import look

    report(None, "running the task's model")
    source: str | Path | None = text or None
    if image is not None:
        source = Path(image)
    result = look(task, source)
    record = result.record
    record.info["model"] = str(record.info.get("model") or task)
    record.info["text"] = str(record.info.get("text") or text)[:TEXT]
    notes = " ".join((result.said, *result.notes))
    lines = [
        "from regard.tasks.common.looks import look",
        "",
        f"record = look({task!r}, {text or None!r}).record",
    ]
    if image is not None:
        lines = [
            lines[0],
            "from pathlib import Path",
            "",
            f'record = look({task!r}, Path("picture.png")).record',
        ]
    return record, {"text": text, "message": notes, "code": "\n".join(lines)}


def code(reader: Reader, kind: str, text: str, changed: dict[str, Any] | None = None) -> str:
    """Lines of Python that make the record again."""
    if kind == "embedded":
        load = [
            "from regard.embedded import llama",
            "from regard.embedded.tokenizer import Tokenizer",
            "",
            "model, tokenizer = llama.load(), Tokenizer()",
        ]
    else:
        kind = models.auto_class(reader.model.config)
        load = [
            f"from transformers import {kind}, AutoTokenizer",
            "",
            f"model = {kind}.from_pretrained({reader.name!r}).eval()",
            f"tokenizer = AutoTokenizer.from_pretrained({reader.name!r})",
        ]
    lines = ["import torch", "", "import regard as rg", *load, f"text = {text!r}"]
    lines.append('inputs = {"input_ids": tokenizer(text, return_tensors="pt")["input_ids"]}')
    if reader.answers:
        lines += [
            f"reply = model.generate(**inputs, max_new_tokens={models.REPLY}, do_sample=False, num_beams=1)",
            'inputs["decoder_input_ids"] = reply',
        ]
    keep = "vectors"
    if changed is not None:
        keep = changed["keep"]
        lines += ["with contextlib.ExitStack() as changes:"]
        lines += [f"    changes.enter_context({line})" for line in changed["code"]]
        lines[0] = "import contextlib\n\nimport torch"
    run = [f"with torch.inference_mode(), rg.watch(model, keep={keep!r}) as record:", "    model(**inputs)"]
    if changed is not None:
        run = [f"    {line}" for line in run]
    lines += run
    return "\n".join(lines)


if __name__ == "__main__":
    import sys

    loaded = Readers(*sys.argv[1:])
    child.serve(lambda request, report: run(request, report, loaded))
