"""New models in place of trained ones: what a look does that does not depend on their having learned anything."""

import pytest

from regard.training.tasks import answer, bottleneck, caption, kept, tasks
from regard.training.tasks.words import Vocabulary, pieces

SENTENCES = (
    "the cache keeps what was used. a lock makes sure that it is not changed at once, which costs time"
)
VOCABULARIES = {
    "answer": answer.vocabulary,
    "caption": caption.vocabulary,
    "summarise": lambda: Vocabulary(tuple(dict.fromkeys(pieces(SENTENCES)))),
    "bottleneck": bottleneck.vocabulary,
}
SCORES = {
    "answer": {"support": {"best": {"layer": "encoder.stack.layers.2.attention", "head": 2}}},
    "caption": {"digits": {"best": {"layer": "decoder.stack.layers.1.crossing", "head": 2}}},
    "summarise": {},
    "bottleneck": {"exact": {"score": 0.5}},
}


@pytest.fixture
def fresh(monkeypatch):
    """`fresh("answer")`: from now on the task's models are new ones, and their cards say `scores`.

    Returns its models by name, once they were loaded, and its words.
    """

    def make(name, scores=None):
        found, words = {}, VOCABULARIES[name]()
        load, card = kept.load, kept.card

        def load_new(task, model):
            if task != name:
                return load(task, model)
            (chosen,) = tasks(task, model)
            return found.setdefault(model, chosen.new(len(words), 7).eval()), words

        def new_card(task, model):
            return (
                card(task, model) if task != name else {"scores": SCORES[name] if scores is None else scores}
            )

        monkeypatch.setattr(kept, "load", load_new)
        monkeypatch.setattr(kept, "card", new_card)
        return found, words

    return make
