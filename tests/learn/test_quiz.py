"""A thousand generated questions from models trained and untrained: each has exactly one right answer."""

import warnings
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import regard as rg
from learn.quiz_reference import best, right_answers
from regard.embedded import TEXT, llama
from regard.embedded.tokenizer import Tokenizer
from regard.errors import ArgumentError, FewQuestionsWarning
from regard.learn.quizzes.generate import TEMPLATES

TEXTS = (
    TEXT,
    "import torch\n\nfor name, value in sorted(table.items()):\n    print(name, value)\n",
    'class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        """Add."""\n'
    "        self.items.append(item)\n",
)
# More texts for a profile.
PARTS = [text[start : start + 60] for text in TEXTS for start in (0, 30)]
COUNTS = {
    "embedded 0": 220,
    "embedded 1": 160,
    "embedded 2": 160,
    "untrained": 60,
    "grouped": 200,
    "padded encoder": 130,
    "translator": 120,
}


def causal(call, batch):
    """Queries sit at the end."""
    queries, keys = call.sizes.queries, call.sizes.keys
    allowed = np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
    return allowed, np.ones(queries, bool)


def translated(call, batch):
    """The decoder's self-attention alone is causal."""
    if call.kind == "self" and "decoder" in call.layer:
        return causal(call, batch)
    return np.ones((call.sizes.queries, call.sizes.keys), bool), np.ones(call.sizes.queries, bool)


LENGTHS = (23, 17, 11)


def padded(call, batch):
    """Keys past the length of a text are padding, and so are its queries."""
    real = np.arange(LENGTHS[0]) < LENGTHS[batch]
    return np.tile(real, (len(real), 1)), real


def read(model, text):
    ids = Tokenizer()(text, return_tensors="pt")["input_ids"]
    tokens = [Tokenizer().decode([i]) for i in ids[0].tolist()]
    with torch.no_grad(), rg.watch(model, keep="vectors", tokens=tokens) as record:
        model(ids)
    return record, model, {"input_ids": ids}


@cache
def seen(name):
    """Record, model, inputs and mask of a case."""
    torch.manual_seed(3)
    if name.startswith("embedded"):
        return *read(llama.load(), TEXTS[int(name[-1])]), causal
    if name == "untrained":
        model = llama.load()
        for weights in model.parameters():
            torch.nn.init.normal_(weights, std=0.06)
        return *read(model, TEXT), causal
    if name == "grouped":
        config = LlamaConfig(
            vocab_size=97,
            hidden_size=48,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=2,
            intermediate_size=64,
            initializer_range=0.35,
        )
        model = LlamaForCausalLM(config).eval()
        inputs = {"input_ids": torch.randint(97, (2, 29))}
        with torch.no_grad(), rg.watch(model, keep="vectors") as record:
            model(**inputs)
        return record, model, inputs, causal
    if name == "padded encoder":
        layer = torch.nn.TransformerEncoderLayer(24, 4, 40, batch_first=True, dropout=0.0)
        model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
        for encoder in model.layers:
            torch.nn.init.normal_(encoder.self_attn.in_proj_weight, std=0.5)
        padding = torch.arange(LENGTHS[0]) >= torch.tensor(LENGTHS)[:, None]
        inputs = {"src": torch.randn(3, LENGTHS[0], 24), "src_key_padding_mask": padding}
        with torch.no_grad(), rg.watch(model, keep="vectors") as record:
            model(**inputs)
        return record, model, inputs, padded
    record = rg.tasks.look("translate", "Thursday, March 3, 2022", into="fr").record
    return record, None, None, translated


@cache
def questions(name):
    record, model, inputs, _ = seen(name)
    with warnings.catch_warnings():
        # How many an untrained model gives is its own affair.
        warnings.simplefilter("ignore", FewQuestionsWarning)
        return rg.learn.quiz(record, inputs, model=model, count=COUNTS[name], seed=5)


def changes(name, heads):
    """How far outputs are without each head, whose columns of the output projection are set to 0."""
    _, model, inputs, _ = seen(name)
    record = seen(name)[0]
    values = []
    for call, head in heads:
        layer = model.get_submodule(record[call].layer)
        projection = layer.out_proj if hasattr(layer, "out_proj") else layer.o_proj
        size = projection.weight.shape[1] // record[call].sizes.heads
        before = projection.weight.detach().clone()
        with torch.no_grad():
            whole = output(model(**inputs))
            projection.weight[:, head * size : (head + 1) * size] = 0
            without = output(model(**inputs))
            projection.weight.copy_(before)
        if name == "grouped":
            p, q = whole.double().log_softmax(-1), without.double().log_softmax(-1)
            values.append(float((p.exp() * (p - q)).sum(-1).mean()))
        else:
            values.append(float((without - whole).double().norm() / whole.double().norm()))
    return values


def output(result):
    return getattr(result, "logits", result)


@pytest.mark.parametrize("name", COUNTS)
def test_each_question_has_exactly_one_right_answer(name):
    record, _, _, allowed = seen(name)
    for question in questions(name):
        if question.template == "removal":
            values = changes(name, question.subject["heads"])
            assert best(values, apart=0.004) == [question.right], question
            continue
        right = question.right
        if right is None:
            right = 0
        assert right_answers(question, record, allowed) == [right], (question, question.expected)


def test_there_are_a_thousand_of_all_templates():
    every = [question for name in COUNTS for question in questions(name)]
    counts = Counter(question.template for question in every)
    assert len(every) >= 1000 and len(TEMPLATES) >= 8
    assert len({question.card_id for question in every}) == len(every)
    assert set(counts) == {*TEMPLATES, "removal"}, counts
    assert min(counts.values()) >= 10, counts


def test_the_reference_can_fail():
    # A question whose right answer is another one is seen as wrong.
    record, _, _, allowed = seen("embedded 0")
    for question in questions("embedded 0")[:60]:
        if question.template == "removal":
            continue
        if question.right is None:
            wrong = replace(question, number=question.number + 3 * question.tolerance + 1)
            assert right_answers(wrong, record, allowed) == []
        elif question.template != "most received":
            other = (question.right + 1) % len(question.choices)
            assert right_answers(question, record, allowed) != [other]


def test_texts_and_choices_can_be_told_apart():
    for name in COUNTS:
        for question in questions(name):
            assert question.text.endswith(("?", ".")) and len(question.explanation) > 30
            texts = [choice.text for choice in question.choices]
            assert len(set(texts)) == len(texts) or question.template.endswith("map")
            assert question.right is None or (2 <= len(texts) <= 4 and 0 <= question.right < len(texts))
            assert (question.right is None) == (question.number is not None)


def test_the_same_seed_gives_the_same_questions():
    record, *_ = seen("embedded 1")
    first, second = (rg.learn.quiz(record, count=12, seed=7) for _ in range(2))
    assert first == second and first != rg.learn.quiz(record, count=12, seed=8)


def test_a_saved_record_gives_the_same_cards(tmp_path):
    record, *_ = seen("embedded 1")
    record.save(tmp_path / "record")
    again = rg.learn.quiz(rg.load(tmp_path / "record"), count=20, seed=1)
    assert again == rg.learn.quiz(record, count=20, seed=1)


def test_a_model_is_watched_on_its_inputs():
    _, model, inputs, _ = seen("grouped")
    asked_of_model = rg.learn.quiz(model, inputs, count=40, seed=2)
    assert "removal" in {question.template for question in asked_of_model}


def test_fewer_are_given_and_it_is_said():
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.zeros(1, 3, 8)
    with torch.no_grad(), rg.watch(layer, keep="vectors") as record:
        layer(x, x, x)
    with pytest.warns(FewQuestionsWarning, match="0 of 10 questions"):
        assert rg.learn.quiz(record, count=10) == ()


def test_without_vectors_there_are_questions_on_heads():
    model, (_, _, inputs, _) = llama.load(), seen("embedded 0")
    with torch.no_grad(), rg.watch(model) as record:
        model(**inputs)
    templates = {question.template for question in rg.learn.quiz(record, count=40)}
    assert {"lowest entropy", "farthest", "most received", "previous map"} <= templates
    assert not templates & {"rest", "temperature", "window"}


def test_a_profile_asks_where_intervals_are_apart():
    profile = rg.survey(llama.load(), [Tokenizer()(text, return_tensors="pt") for text in (*TEXTS, *PARTS)])
    table = profile.intervals()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewQuestionsWarning)
        asked_of_profile = rg.learn.quiz(profile, count=30)
    assert len(asked_of_profile) >= 10
    for question in asked_of_profile:
        rows = [
            table[
                (table.layer == layer)
                & (table["head"] == head)
                & (table.statistic == question.subject["statistic"])
            ]
            for layer, _, head in question.subject["heads"]
        ]
        bounds = [(float(row.low.iloc[0]), float(row.high.iloc[0])) for row in rows]
        low, high = bounds[question.right]
        others = [bound for index, bound in enumerate(bounds) if index != question.right]
        if question.subject["smallest"]:
            assert all(high < other for other, _ in others)
        else:
            assert all(low > other for _, other in others)


def test_wrong_sources_are_errors():
    record, model, *_ = seen("grouped")
    for arguments, message in (
        (("a record",), "source must be a record, a profile or a model, got str"),
        ((model,), "inputs must be given with a model"),
    ):
        with pytest.raises(ArgumentError, match=message):
            rg.learn.quiz(*arguments)
    with pytest.raises(ArgumentError, match="inputs must be given with a model"):
        rg.learn.quiz(record, model=model)
    with pytest.raises(ArgumentError, match="count must be"):
        rg.learn.quiz(record, count=-1)
