"""Put trained models of the tasks into `packages/regard-tasks`: weights, tokenizer, history, card, pictures, a page.

    python scripts/keep_tasks.py FOLDER [TASK …]

FOLDER holds TASK/MODEL as `regard train TASK --folder FOLDER/TASK` leaves it. Without names: every task that is there.
"""

import json
import re
import shutil
import sys
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from regard import draw, embedded, files
from regard.draw.series import Panel
from regard.files import sealing
from regard.record.history import History
from regard.tasks.common import model_card, pretrained
from regard.tasks.common.catalogue import NAMES, tasks
from regard.tasks.common.looks import LOOKS, look
from regard.tasks.common.task import CARD, MODEL, TOKENIZER, Task, read_card, write_card
from regard.training.monitor import FILE

SEEDS = (0, 1, 2)  # of the bottleneck's figure; the first one's weights are kept
DOCS = Path(__file__).parent.parent / "docs" / "tasks.md"


def keep(task: Task, source: Path) -> None:
    """Copy one model, and score what is kept."""
    folder = pretrained.folder(task.name, task.model)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copytree(source / MODEL, folder / MODEL)
    tokenizer_once(folder / MODEL)
    if task.attends:
        shutil.copy(source / FILE, folder / FILE)
    trained = read_card(source)["training"]
    shutil.copy(source / CARD, folder / CARD)
    card = task.evaluate(folder)
    state = json.loads(max(source.glob("checkpoint-*/trainer_state.json"), key=_steps).read_text())
    losses = {
        str(entry["step"]): round(entry["loss"], 4) for entry in state["log_history"] if "loss" in entry
    }
    card["training"] = trained | {"losses": losses}
    write_card(folder, card)
    print(task.name, task.model, {name: value for name, *value in model_card.lines(card["scores"])})


def tokenizer_once(folder: Path) -> None:
    """Leave out a tokenizer that is the embedded model's, as `Task.load` takes that one where there is none."""
    same = [name for name in TOKENIZER if _bytes(folder / name) == _bytes(embedded.folder() / name)]
    if len(same) == len(TOKENIZER):
        for name in TOKENIZER:
            (folder / name).unlink()
        sealing.seal(folder)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _steps(path: Path) -> int:
    # As a number: as texts, checkpoint-500 comes after checkpoint-1000.
    return int(path.parent.name.rpartition("-")[2])


def lengths(source: Path) -> None:
    """The bottleneck's figure: exact translations against the number of dates, over the seeds that were trained."""
    path_of_lengths = pretrained.folder("bottleneck") / "lengths.json"
    seen: dict[str, dict[str, dict[str, list[float]]]] = {}
    # Seeds that were trained before and are not in the folder any more stay in the figure.
    if path_of_lengths.exists():
        seen = json.loads(path_of_lengths.read_text())
    for task in tasks("bottleneck"):
        for seed in SEEDS:
            path = source / f"{task.model}{f'-{seed}' if seed else ''}" / CARD
            if path.exists():
                scores = read_card(path.parent)["scores"]
                seen.setdefault(task.model, {})[str(seed)] = {
                    name: [score["score"] for score in scores[name].values()]
                    for name in ("exact_by_length", "dates_by_length")
                }
    # In the order of the tasks, which is that of the legend, and not in the order in which they were trained.
    seen = {task.model: seen[task.model] for task in tasks("bottleneck") if task.model in seen}
    files.write(path_of_lengths, json.dumps(seen, indent=1) + "\n")
    table = {
        model: {name: [run[name] for run in runs.values()] for name in ("exact_by_length", "dates_by_length")}
        for model, runs in seen.items()
    }
    across = list(range(1, 9))
    panels = [
        Panel(
            title, "dates in a row", "share", {model: (across, rows[name]) for model, rows in table.items()}
        )
        for title, name in (
            ("rows without a fault", "exact_by_length"),
            ("dates that are right", "dates_by_length"),
        )
    ]
    fewest = min(len(runs) for runs in seen.values())
    note = f"Held-out dates. Trained with {fewest} seed{'s: lines are means, tints ranges' * (fewest > 1)}."
    figure = draw.series(panels, title="Where a fixed vector fails and attention does not", note=note)
    _picture(figure, pretrained.folder("bottleneck") / "bottleneck.png")


def _picture(figure: Figure, path: Path) -> None:
    drawn = BytesIO()
    figure.savefig(drawn, dpi=110)
    with files.replacing(path) as unfinished:
        # Figures are opaque: without a channel that says so a file is a tenth smaller.
        Image.open(drawn).convert("RGB").save(unfinished, format="PNG", optimize=True)


def page(name: str) -> None:
    """Draw the pictures of a task and write its page."""
    folder = pretrained.folder(name)
    models = [task for task in tasks(name) if (folder / task.model / CARD).exists()]
    if name in LOOKS and name != "bottleneck":
        _picture(look(name).figures[0][1], folder / "attention.png")
    attending = next(task for task in models if task.attends)
    _picture(draw.history(History.load(folder / attending.model / FILE)), folder / "history.png")
    about = re.search(
        rf"^## {name}\n(.*?)(?=^## |\Z)", DOCS.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert about is not None, f"docs/tasks.md must tell of {name}"
    pictures = [picture for picture in model_card.SHOWN if (folder / picture).exists()]
    found = [pretrained.card(name, task.model) for task in models]
    files.write(folder / "CARD.md", model_card.text(name, about[1], found, pictures))


def main() -> None:
    """Keep what is in the folder."""
    source, *names = sys.argv[1:]
    for name in names or NAMES:
        for task in tasks(name):
            if (Path(source) / name / task.model / CARD).exists():
                keep(task, Path(source) / name / task.model)
        if name == "bottleneck":
            lengths(Path(source) / name)
        page(name)


if __name__ == "__main__":
    main()
