"""`translate` and `bottleneck` on a text of one's own: the translation, and which word came from which."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.looks.looked import FOUND, Looked, Written, readable, write
from regard.looks.recognise import recognise
from regard.record import Call
from regard.training.tasks import kept, tasks, translate
from regard.training.tasks.pairs import Pair
from regard.training.tasks.words import END, Vocabulary, pieces

TEXT = "Thursday, 3 March 2022"
SAYS = "dates, times and numbers up to 9999 in words, as in " + ", ".join(
    map(repr, (TEXT, "March 3, 2022, 4:05:06 PM UTC", "two hundred and one"))
)
LONGEST = 90  # tokens that are read, and that are written


def look(text: str | None, *, task: str = "translate", model: str | None = None, into: str = "fr") -> Looked:
    """Translate an English date, time or number.

    Args:
        text: English; None: an example.
        task: "translate", or "bottleneck" for several dates with "; " between them.
        model: one of the task's; None: the transformer.
        into: "fr" or "de".

    Raises:
        ArgumentError: no text, a word that is not known, another language, a model without attention.
    """
    if into not in translate.LANGUAGES:
        raise ArgumentError(f"--to must be {' or '.join(translate.LANGUAGES)}, got {into!r}")
    (chosen,) = tasks(task, model or "transformer")
    if not chosen.attends:
        raise ArgumentError(f"the model must have attention to look at, and {chosen.model!r} has none")
    text = TEXT if text is None else text.strip()
    network, words = kept.load(task, chosen.model)
    pair = recognise(text, into)
    read = pieces(text) if pair is None else pair.source.pieces
    source = _source(read, translate.TAGS[into], words)
    written = write(network, {"input_ids": torch.tensor([words.encode(source)])}, LONGEST, words)
    written.record.source_tokens = [list(source)]
    return _told(text, source, written, words, pair, _best(task, chosen.model, written))


def _source(found: tuple[str, ...], tag: str, words: Vocabulary) -> tuple[str, ...]:
    """All that is read: the tag, the pieces of a text, the end.

    Raises:
        ArgumentError: there are none, too many, or unknown ones.
    """
    if not 1 <= len(found) <= LONGEST:
        raise ArgumentError(
            f"the text must have 1 to {LONGEST} words and signs, got {len(found):,}: give {SAYS}"
        )
    try:
        words.encode(found)
    except ArgumentError as error:
        raise ArgumentError(f"{error}; this model knows {SAYS}") from None
    return (tag, *found, words.all[END])


def _best(task: str, model: str, written: Written) -> tuple[Call, int]:
    """The cross attention that is shown: the head that found most on held-out data."""
    best = kept.card(task, model)["scores"].get("alignment", {}).get("best")
    if best is not None:
        return written.record[best["layer"]], int(best["head"])
    return next(call for call in reversed(written.record.calls) if call.kind == "cross"), 0


def _told(
    text: str,
    source: tuple[str, ...],
    written: Written,
    words: Vocabulary,
    pair: Pair | None,
    best: tuple[Call, int],
) -> Looked:
    from regard import draw

    call, head = best
    weights = call.weights(head)
    said, target = words.decode(written.ids), written.words(words)
    truth = pair.alignment if pair is not None and said == str(pair.target) else None
    places = weights.argmax(-1).tolist()
    marks = [_mark(truth, row, place) for row, place in enumerate(places)]
    rows = tuple(
        (readable(word), readable(source[place]), f"{weights[row, place]:.2f}", FOUND[mark])
        for row, (word, place, mark) in enumerate(zip(target, places, marks, strict=True))
    )
    notes = written.doubts(words)
    if pair is not None and str(pair.source) != text:
        notes += (f"It was read as {str(pair.source)!r}.",)
    if pair is not None and said != str(pair.target):
        notes += (f"This is wrong: it should be {str(pair.target)!r}.",)
    if truth is not None:
        known = [mark for mark in marks if mark is not None]
        notes += (
            f"Attention was on the right word for {sum(known)} of {len(known)} words that have a partner.",
        )
    caption = f"Where {call.layer}, head {head}, looked while it wrote each word of {said!r}."
    names = [readable(word) for word in target], [readable(word) for word in source]
    figure = draw.heatmap(
        weights, tokens=names[0], key_tokens=names[1], truth=truth, title=f"{text} → {said}"
    )
    return Looked(
        said, ("written", "looked at", "weight", ""), rows, notes, written.record, ((caption, figure),)
    )


def _mark(truth: Tensor | None, row: int, place: int) -> bool | None:
    """Whether a word's partner was found; None where it has none, or none is known."""
    if truth is None or row >= len(truth) or not bool(truth[row].any()):
        return None
    return bool(truth[row, place])
