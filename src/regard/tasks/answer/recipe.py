"""`answer`: an encoder reads a story and a question, and fills in the masked answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.models import EncoderConfig, EncoderForMaskedLM
from regard.record import Call
from regard.tasks.answer import data as answer
from regard.tasks.common import metrics
from regard.tasks.common.batches import IGNORED
from regard.tasks.common.scores import batches, mean_with_interval
from regard.tasks.common.task import Card, Data, Task
from regard.tasks.common.tokenizer import PAD
from regard.training.recipe import Recipe
from regard.watch import watch

RECIPE = Recipe(
    max_steps=12000,
    batch_size=32,
    learning_rate=1.5e-3,
    adam_beta2=0.98,
    weight_decay=0.01,
    precision="bfloat16",
    logging_steps=50,
    save_steps=500,
)
QUICK = replace(RECIPE, max_steps=250, adam_beta2=0.999, logging_steps=20)
# Stories to train on, and held-out stories with one supporting sentence and as many with two, by `quick`.
STORIES = {False: (400_000, 1000), True: (8000, 100)}

MEASURES = {
    "support": metrics.support_has_majority,
    "first_support": metrics.top_is_support,
    "all_support": metrics.support_ranks_first,
}


def build(vocab_size: int) -> EncoderForMaskedLM:
    """Four layers of three heads, 96 wide; in the first, words look at their own sentence only."""
    model = EncoderForMaskedLM(
        EncoderConfig(
            vocab_size=vocab_size,
            hidden_size=96,
            num_attention_heads=3,
            num_hidden_layers=4,
            local_layers=1,
            type_vocab_size=answer.SEGMENTS,
            dropout=0.0,
            position_embedding_type="rotary",
            pad_token_id=PAD,
        )
    )
    # As small as BERT's they would be lost behind the first layer: who a sentence is about is learned much later.
    for name in ("tokens", "segments"):
        nn.init.normal_(model.get_parameter(f"encoder.embedding.{name}.weight"), std=0.3)
    return model


def data(quick: bool, tokenizer: Any) -> Data:
    """Stories; as many held-out ones with one supporting sentence as with two, the former first."""
    train, of_each_kind = STORIES[quick]
    held = [story for facts in (1, 2) for story in answer.examples(of_each_kind, facts=facts, held=True)]
    return Data(
        lambda: answer.Lessons(train),
        answer.Stories(held),
        answer.collate,
        tokenizer or answer.vocabulary(),
    )


@torch.no_grad()
def score(model: Any, data: Data) -> Card:
    """The part of right answers, and how often attention is on the sentences that the answer follows from.

    Three measures, of each head's weights for the answer's query, and of the rollout's: that the supporting sentences
    together have more weight than all others together (`support`), that the sentence with the most weight is a
    supporting one (`first_support`), and that every supporting one has more than any other (`all_support`).
    """
    stories = data.held_out.examples
    facts = np.array([len(story.support) for story in stories])
    right: list[float] = []
    # Measure → layer → story → head.
    hits: dict[str, dict[str, list[list[bool]]]] = {measure: {} for measure in MEASURES}
    for indices, batch in batches(data, 16):
        with watch(model, statistics=("entropy",), keep="vectors") as record:
            logits = model(**batch).logits
        for row, index in enumerate(indices):
            (query,) = (batch["labels"][row] != IGNORED).nonzero().flatten().tolist()
            right.append(float(logits[row, query].argmax() == batch["labels"][row, query]))
            story, sentence_of = stories[index], data.held_out.sentences(index)
            # Without the padding of the batch.
            keys = len(sentence_of)
            weights = {call.layer: _answer_weights(call, row, query, keys) for call in record}
            weights["rollout"] = metrics.rollout(record, row)[query : query + 1, :keys]
            for layer, of_keys in weights.items():
                of_sentences = metrics.sentence_weights(of_keys, sentence_of, len(story.sentences))
                for measure, is_hit in MEASURES.items():
                    hits[measure].setdefault(layer, []).append(is_hit(of_sentences, story.support).tolist())
    card: Card = {"right": {str(n): mean_with_interval(np.array(right)[facts == n]) for n in (1, 2)}}
    for measure, of_layers in hits.items():
        table = {layer: np.array(rows, dtype=float) for layer, rows in of_layers.items()}
        card[measure] = _measure_card(table, facts)
    return card


def _measure_card(hits: dict[str, np.ndarray], facts: np.ndarray) -> Card:
    """What the card says of one measure.

    Args:
        hits: layer → 1 or 0, `(stories, heads)`. facts: number of supporting sentences of each story, `(stories,)`.
    """

    def lower_rate(layer: str) -> np.ndarray:
        """Of each head the lower of its hit rates on stories with one supporting sentence and with two."""
        return np.minimum(*(hits[layer][facts == n].mean(0) for n in (1, 2)))

    # A head that is right on one kind of story alone is not the best one.
    layer = max(hits, key=lambda name: float(lower_rate(name).max()))
    head = int(lower_rate(layer).argmax())
    best: Card = {"layer": layer}
    if layer != "rollout":
        best["head"] = head
    return {
        "best": best | mean_with_interval(hits[layer][:, head]),
        "best_by_facts": {str(n): mean_with_interval(hits[layer][facts == n, head]) for n in (1, 2)},
        "heads": {name: _rates_by_facts(rows, facts) for name, rows in hits.items()},
    }


def _answer_weights(call: Call, row: int, query: int, keys: int) -> Tensor:
    """The weights of the answer's query in a call, `(heads, keys)`."""
    window = slice(query, query + 1), slice(0, keys)
    return torch.cat([call.weights(head, *window, batch=row) for head in range(call.sizes.heads)])


def _rates_by_facts(hits: np.ndarray, facts: np.ndarray) -> Card:
    """Hit rate of each head, by number of supporting sentences, of hits `(stories, heads)`."""
    return {str(n): [round(float(x), 4) for x in hits[facts == n].mean(0)] for n in (1, 2)}


TASKS = (Task("answer", "encoder", EncoderForMaskedLM, RECIPE, QUICK, build, data, score),)
