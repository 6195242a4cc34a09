"""`caption` on a picture of one's own: what is written, and where each word looked."""

from __future__ import annotations

from pathlib import Path

from regard import draw
from regard.record import attach_picture
from regard.tasks.caption import data as caption
from regard.tasks.caption.data import Scene
from regard.tasks.caption.read_image import canvas
from regard.tasks.caption.recipe import LONGEST, PATCH
from regard.tasks.caption.typed import typed
from regard.tasks.common import pretrained
from regard.tasks.common.result import SURE, Result, table, write
from regard.tasks.common.tokenizer import END

MODEL = "transformer"
SIDE = caption.CANVAS // PATCH  # patches, each way
TYPED = "The digits look typed. The model has learned from handwriting alone: of typed ones it reads about half wrong."
PATCHES = [f"{row},{column}" for row in range(1, SIDE + 1) for column in range(1, SIDE + 1)]


def look(path: Path | None, *, model: str | None = None) -> Result:
    """Say how the digits of a picture lie to each other.

    Args:
        path: of a picture; None: a scene of held-out digits, whose right caption is known.
        model: of the task; None: its only one.

    Raises:
        ArgumentError: no picture, or one that shows no digits.
    """
    scene: Scene | None = None
    notes: tuple[str, ...] = ()
    if path is None:
        scene = caption.scenes(1, size=3, held=True)[0]
        image = scene.image
    else:
        image, notes = canvas(path)
        if typed(image[0].double().numpy()):
            notes += (TYPED,)
    model = model or MODEL
    network, vocabulary = pretrained.load("caption", model)
    best = pretrained.card("caption", model)["scores"]["digits"]["best"]
    written = write(network, {"pixel_values": image[None]}, LONGEST, vocabulary)
    record, sentence = written.record, vocabulary.decode(written.ids)
    record.source_tokens = [PATCHES]
    record.info |= {"model": f"caption, {model}", "text": sentence}
    # The image is ink on paper: 0 is white.
    attach_picture(record, 1 - image, (SIDE, SIDE), text="source", words=written.words)
    # The end is left out, unless nothing else was written.
    count = max(len(written.ids) - (written.ids[-1] == END), 1)
    weights, names = record[best["layer"]].weights(int(best["head"]))[:count], written.words[:count]
    right = scene is not None and names == [*scene.words]
    truth = scene.truth(PATCH)[:count] if scene is not None and right else None
    lines, known = table(names, weights, PATCHES, truth)

    notes += written.doubts(SURE["caption"])
    if scene is not None and not right:
        notes += (f"This is wrong: it should be {' '.join(scene.words)!r}.",)
    if known:
        notes += (f"Attention was on the right digit for {sum(known)} of {len(known)} digits.",)
    under = f"Where {best['layer']}, head {best['head']}, looked while it wrote each word."
    truths = None if truth is None else truth.unflatten(1, (SIDE, SIDE))
    figure = draw.overlay(
        image, weights.unflatten(1, (SIDE, SIDE)), names, truth=truths, title=sentence, note=under
    )
    header = ("written", "looked at (row, column)", "weight", "")
    return Result(sentence, header, lines, notes, record, ((" ".join(notes) or under, figure),))
