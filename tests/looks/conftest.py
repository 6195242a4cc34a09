"""New models in place of trained ones: what a look does that does not depend on their having learned anything."""

import pytest

from regard.training.tasks import answer, bottleneck, caption, kept, tasks
from regard.training.tasks.words import Vocabulary, pieces

SENTENCES = (
    "the cache keeps what was used . a lock makes sure that it is not changed at once , which costs time"
)
CARDS = {
    "answer": {"support": {"best": {"layer": "encoder.stack.layers.2.attention", "head": 3}}},
    "caption": {"digits": {"best": {"layer": "decoder.stack.layers.1.crossing", "head": 2}}},
    "summarise": {},
    "bottleneck": {"exact": {"score": 0.5}},
}
VOCABULARIES = {
    "answer": answer.vocabulary,
    "caption": caption.vocabulary,
    "summarise": lambda: Vocabulary((*dict.fromkeys(pieces(SENTENCES)), "##.", "##,")),
    "bottleneck": bottleneck.vocabulary,
}


@pytest.fixture
def fresh(monkeypatch):
    """`fresh("answer")`: from now on the task's models are new ones, and their cards say `scores`."""
    found = {}

    def make(name, scores=None):
        words = VOCABULARIES[name]()

        def load(task, model):
            assert task == name
            (chosen,) = tasks(task, model)
            if model not in found:
                found[model] = chosen.new(len(words), 7).eval()
            return found[model], words

        monkeypatch.setattr(kept, "load", load)
        monkeypatch.setattr(
            kept, "card", lambda task, model: {"scores": CARDS[name] if scores is None else scores}
        )
        return found, words

    return make
