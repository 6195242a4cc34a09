"""`caption` on a picture of one's own: what is written, and where each word looked."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from regard import draw
from regard.looks.looked import FOUND, Looked, write
from regard.looks.picture import canvas
from regard.record import Call, Record
from regard.training.tasks import caption, kept
from regard.training.tasks.caption import Scene
from regard.training.tasks.recipes.caption import LONGEST, PATCH

MODEL = "transformer"
SIDE = caption.CANVAS // PATCH  # patches, each way


def look(path: Path | None, *, model: str | None = None, seed: int = 0) -> Looked:
    """Say how the digits of a picture lie to each other.

    Args:
        path: of a picture; None: a scene of held-out digits, whose right caption is known.
        model: of the task; None: its only one.
        seed: of that scene.

    Raises:
        ArgumentError: no picture, or one that shows no digits.
    """
    scene = caption.scenes(1, size=3, held=True, seed=seed)[0] if path is None else None
    image, notes = (scene.image, ()) if scene is not None else canvas(Path(str(path)))
    network, words = kept.load("caption", model or MODEL)
    written = write(network, {"pixel_values": image[None]}, LONGEST, words)
    record, best = written.record, kept.card("caption", model or MODEL)["scores"]["digits"]["best"]
    record.source_tokens = [[f"{row},{column}" for row in range(SIDE) for column in range(SIDE)]]
    where = record[best["layer"]], int(best["head"])
    said = words.decode(written.ids)
    notes += written.doubts(words)
    if scene is not None and said != " ".join(scene.words):
        notes += (f"This is wrong: it should be {' '.join(scene.words)!r}.",)
    return _told(scene, image, said, written.words(words)[: len(said.split())], notes, record, where)


def _told(
    scene: Scene | None,
    image: Tensor,
    said: str,
    names: list[str],
    notes: tuple[str, ...],
    record: Record,
    where: tuple[Call, int],
) -> Looked:
    call, head = where
    weights = call.weights(head)[: len(names)]
    right = scene is not None and said == " ".join(scene.words)
    truth = scene.truth(PATCH)[: len(names)] if scene is not None and right else None
    places = weights.argmax(-1).tolist()
    rows, known = [], []
    for row, (name, place) in enumerate(zip(names, places, strict=True)):
        mark = None if truth is None or not truth[row].any() else bool(truth[row, place])
        known += [] if mark is None else [mark]
        patch = f"{place // SIDE + 1}, {place % SIDE + 1}"
        rows.append((name, patch, f"{weights[row, place]:.2f}", FOUND[mark]))
    if known:
        notes += (f"Attention was on the right digit for {sum(known)} of {len(known)} digits.",)
    caption_line = f"Where {call.layer}, head {head}, looked while it wrote each word."
    figure = draw.overlay(
        image, weights.unflatten(1, (SIDE, SIDE)).numpy(), names,
        truth=None if truth is None else truth.unflatten(1, (SIDE, SIDE)).numpy(), title=said, note=caption_line,
    )  # fmt: skip
    header = ("written", "looked at (row, column)", "weight", "")
    return Looked(said, header, tuple(rows), notes, record, ((caption_line, figure),))
