"""New models in place of trained ones: what a look does that does not depend on their having learned anything."""

import pytest

from regard.tasks.answer import data as answer
from regard.tasks.bottleneck import data as bottleneck
from regard.tasks.caption import data as caption
from regard.tasks.common import pretrained
from regard.tasks.common.catalogue import tasks
from regard.tasks.common.tokenizer import Vocabulary, tokenize

SENTENCES = (
    "the cache keeps what was used. a lock makes sure that it is not changed at once, which costs time"
)
VOCABULARIES = {
    "answer": answer.vocabulary,
    "caption": caption.vocabulary,
    "summarize": lambda: Vocabulary(tuple(dict.fromkeys(tokenize(SENTENCES)))),
    "bottleneck": bottleneck.vocabulary,
}
SCORES = {
    "answer": {"support": {"best": {"layer": "encoder.stack.layers.2.attention", "head": 2}}},
    "caption": {"digits": {"best": {"layer": "decoder.stack.layers.1.crossing", "head": 2}}},
    "summarize": {},
    "bottleneck": {"exact": {"score": 0.5}},
}


@pytest.fixture
def fresh(monkeypatch):
    """`fresh("answer")`: from now on the task's models are new ones, and their cards say `scores`.

    Returns its models by name, once they were loaded, and its words.
    """

    def make(name, scores=None):
        found, words = {}, VOCABULARIES[name]()
        load, card = pretrained.load, pretrained.card

        def load_new(task, model):
            if task != name:
                return load(task, model)
            (chosen,) = tasks(task, model)
            return found.setdefault(model, chosen.new(len(words), 7).eval()), words

        def new_card(task, model):
            return (
                card(task, model) if task != name else {"scores": SCORES[name] if scores is None else scores}
            )

        monkeypatch.setattr(pretrained, "load", load_new)
        monkeypatch.setattr(pretrained, "card", new_card)
        return found, words

    return make
