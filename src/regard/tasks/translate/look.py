"""`translate` and `bottleneck` on a text of one's own: the translation, and which word came from which."""

from __future__ import annotations

from regard import draw
from regard.errors import ArgumentError
from regard.tasks.bottleneck import look as bottleneck
from regard.tasks.common.catalogue import tasks
from regard.tasks.common.result import SURE, Result, table
from regard.tasks.common.tokenizer import CONTINUATION
from regard.tasks.translate import data as translate
from regard.tasks.translate.read_text import TEXTS, Source, best_head, run

MODELS = {"translate": "transformer", "bottleneck": "bahdanau"}  # looked at unless another is asked for


def look(text: str | None, *, task: str = "translate", model: str | None = None, into: str = "fr") -> Result:
    """Translate an English date, time or number.

    Args:
        text: English; None: an example.
        task: "translate", or "bottleneck" for several dates with "; " between them.
        model: one of the task's; None: the one of `MODELS`. One without attention is shown beside that one.
        into: "fr" or "de".

    Raises:
        ArgumentError: no text, a word that is not known, another language.
    """
    if into not in translate.LANGUAGES:
        raise ArgumentError(f"into (--to) must be {' or '.join(translate.LANGUAGES)}, got {into!r}")
    (chosen,) = tasks(task, model or MODELS[task])
    if not chosen.attends:
        return bottleneck.contrast(text, chosen.model, MODELS[task], into)
    source = Source.of(task, TEXTS[task] if text is None else text, into)
    written, vocabulary = run(source, chosen.model)
    answer, right = vocabulary.decode(written.ids), source.right(written, vocabulary)
    call, head = best_head(task, chosen.model, written)
    weights, (subwords,) = call.weights(head), written.record.source_tokens or [[]]
    keys = [subword.removeprefix(CONTINUATION) for subword in subwords]
    truth = None if right is None else right.alignment
    lines, known = table(written.words, weights, keys, truth)
    notes = (*written.doubts(SURE[task]), *source.notes(right))
    if known:
        notes += (
            f"Attention was on the right word for {sum(known)} of {len(known)} words that have a partner.",
        )
    title = f"{source.text} → {answer}"
    figure = draw.heatmap(weights, tokens=written.words, key_tokens=keys, truth=truth, title=title)
    under = f"Where {call.layer}, head {head}, looked while it wrote each word."
    header = ("written", "looked at", "weight", "")
    return Result(answer, header, lines, notes, written.record, ((" ".join((under, *notes)), figure),))
