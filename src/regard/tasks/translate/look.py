"""`translate` and `bottleneck` on a text of one's own: the translation, and which word came from which."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from regard import draw
from regard.errors import ArgumentError
from regard.record import Call
from regard.tasks.common import pretrained
from regard.tasks.common.catalogue import tasks
from regard.tasks.common.result import Looked, Written, table, write
from regard.tasks.common.tokenizer import CONTINUATION, END, Vocabulary, tokenize
from regard.tasks.translate import data as translate
from regard.tasks.translate.parse_date import recognize

TEXTS = {
    "translate": "Thursday, 3 March 2022",
    "bottleneck": "Thursday, 3 March 2022; Monday, 4 July 1994",
}
KNOWN = {
    "translate": "dates, times and numbers up to 9999 in words, such as 'Thursday, 3 March 2022', "
    "'March 3, 2022, 4:05:06 PM UTC' or 'two hundred and one'",
    "bottleneck": f"rows of one to eight dates in one style, such as {TEXTS['bottleneck']!r}",
}
MODELS = {"translate": "transformer", "bottleneck": "bahdanau"}  # looked at unless another is asked for
LONGEST = 90  # tokens that are read, and that are written


def look(text: str | None, *, task: str = "translate", model: str | None = None, into: str = "fr") -> Looked:
    """Translate an English date, time or number.

    Args:
        text: English; None: an example.
        task: "translate", or "bottleneck" for several dates with "; " between them.
        model: one of the task's; None: the one of `MODELS`.
        into: "fr" or "de".

    Raises:
        ArgumentError: no text, a word that is not known, another language, a model without attention.
    """
    if into not in translate.LANGUAGES:
        raise ArgumentError(f"into (--to) must be {' or '.join(translate.LANGUAGES)}, got {into!r}")
    (chosen,) = tasks(task, model or MODELS[task])
    if not chosen.attends:
        raise ArgumentError(f"the model must have attention to look at, and {chosen.model!r} has none")
    text = TEXTS[task] if text is None else text.strip()
    network, words = pretrained.load(task, chosen.model)
    pairs = recognize(text, into)
    found = pairs[0].source.subwords if pairs else tokenize(text)
    source = [translate.LANGUAGE_TOKENS[into], *_read(found, words, KNOWN[task]), words.all[END]]
    written = write(network, {"input_ids": torch.tensor([words.encode(source)])}, LONGEST, words)
    said = words.decode(written.ids)
    written.record.source_tokens = [source]
    written.record.info |= {"model": f"{task}, {chosen.model}", "text": text}

    notes = written.doubts
    right = next((pair for pair in pairs if words.encode(pair.target.subwords) == written.ids[:-1]), None)
    if not pairs:
        notes += (
            f"This cannot be checked: it is none of the {KNOWN[task]}, or there is no such day or time.",
        )
    elif str(pairs[0].source) != text:
        notes += (f"It was read as {str(pairs[0].source)!r}.",)
    if pairs and right is None:
        wanted = " or ".join(dict.fromkeys(repr(str(pair.target)) for pair in pairs))
        notes += (f"This is wrong: it should be {wanted}.",)
    call, head = _best(task, chosen.model, written)
    weights, keys = call.weights(head), [piece.removeprefix(CONTINUATION) for piece in source]
    truth = None if right is None else right.alignment
    lines, known = table(written.words, weights, keys, truth)
    if truth is not None:
        notes += (
            f"Attention was on the right word for {sum(known)} of {len(known)} words that have a partner.",
        )
    figure = draw.heatmap(
        weights, tokens=written.words, key_tokens=keys, truth=truth, title=f"{text} → {said}"
    )
    under = f"Where {call.layer}, head {head}, looked while it wrote each word."
    header = ("written", "looked at", "weight", "")
    figures = ((" ".join((under, *notes)), figure),)
    return Looked(said, header, lines, notes, written.record, figures)


def _read(found: Sequence[str], words: Vocabulary, known: str) -> Sequence[str]:
    """The pieces of a text, all of which the model can read.

    Raises:
        ArgumentError: there are none, too many, or unknown ones; says what is known.
    """
    if not 1 <= len(found) <= LONGEST:
        raise ArgumentError(
            f"the text must have 1 to {LONGEST} words and signs, got {len(found):,}; this model knows {known}"
        )
    try:
        words.encode(found)
    except ArgumentError as error:
        raise ArgumentError(f"{error}; this model knows {known}") from None
    return found


def _best(task: str, model: str, written: Written) -> tuple[Call, int]:
    """The cross attention that is shown: the head that found most on held-out data."""
    best = pretrained.card(task, model)["scores"].get("alignment", {}).get("best")
    if best is not None:
        return written.record[best["layer"]], int(best["head"])
    return next(call for call in reversed(written.record.calls) if call.kind == "cross"), 0
