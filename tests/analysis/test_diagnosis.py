"""Diagnosis: every rule on attention that is built to have the illness, and on a healthy look-alike."""

import json
import math

import pytest
import torch
from torch import nn

import regard as rg
from helpers.ill_heads import (
    Layer,
    Model,
    batches,
    found,
    found_names,
    noise,
    of,
    on_key,
    own_token,
    previous,
)
from regard.analysis import diagnose, diagnose_model
from regard.analysis.diagnosis import RULES

N = 61
CAUSAL = rg.causal()


def seen(scores, mask=None, tokens=None):
    layer = Layer(scores, mask)
    with rg.watch(layer, tokens=tokens) as record:
        layer(torch.randn(1, scores.shape[-1], 8))
    return record


def test_a_healthy_model_has_no_findings_and_says_what_was_looked_at():
    diagnosis = of(Layer(noise(3, N, 2.0), CAUSAL), Layer(noise(3, N, 2.0), CAUSAL))
    assert diagnosis.findings == () and diagnosis.worst is None
    assert set(diagnosis.applied) == {rule.name for rule in RULES} - {"head safe to prune"}
    assert list(diagnosis.skipped) == ["head safe to prune"]
    assert (diagnosis.texts, diagnosis.heads) == (3, 6)


# --- broken causality ----------------------------------------------------------------------------------------


def test_weight_behind_the_query_is_severe_where_other_layers_are_causal():
    diagnosis = of(*(Layer(noise(2, N), CAUSAL) for _ in range(2)), Layer(noise(2, N)))
    assert found(diagnosis) == [("broken causality", "severe", 2, head) for head in (0, 1)]
    finding = diagnosis.findings[0]
    assert finding.value > 0.3 and finding.threshold == 1e-6
    assert "moves earlier outputs" in finding.sentence


def test_a_single_head_with_another_mask_breaks_causality():
    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = noise(3, N)

        def forward(self, x):
            scores = self.scores[None, :, : x.shape[1], : x.shape[1]]
            key = torch.eye(x.shape[1]).expand(1, 3, -1, -1)
            keep = torch.ones(3, x.shape[1], x.shape[1], dtype=torch.bool).tril()
            keep[1] = True
            value = x[:, None].expand(-1, 3, -1, -1)
            return rg.attend(scores, key, value, mask=rg.dense(keep=keep[None]), scale=1.0).sum(1)

    layer = Split()
    diagnosis = diagnose_model(layer, [{"x": torch.randn(1, 53, 8)}])
    assert [(f.name, f.severity, f.head) for f in diagnosis.findings] == [("broken causality", "severe", 1)]


def test_one_later_key_is_enough():
    ahead = rg.near(before=N, after=1)
    diagnosis = of(Layer(noise(2, N), CAUSAL), Layer(noise(2, N), CAUSAL), Layer(noise(2, N), ahead))
    assert found(diagnosis, "broken causality") == [("broken causality", "severe", 2, h) for h in (0, 1)]


def test_a_bidirectional_encoder_is_no_broken_decoder():
    assert of(Layer(noise(2, N)), Layer(noise(2, N))).findings == ()


def test_an_encoder_beside_a_causal_decoder_is_none():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.ModuleList([Layer(noise(2, N))])
            self.decoder = nn.ModuleList([Layer(noise(2, N), CAUSAL), Layer(noise(2, N), CAUSAL)])

        def forward(self, x):
            for layer in [*self.encoder, *self.decoder]:
                x = x + layer(x)
            return x

    diagnosis = diagnose_model(Both(), [{"x": torch.randn(1, 53, 8)}])
    assert found(diagnosis, "broken causality") == []


def test_a_leak_past_attention_is_found_by_what_the_model_does():
    class Leaking(Model):
        def forward(self, input_ids, attention_mask=None):
            # A normalization over the tokens, which no mask reaches.
            x = self.embed(input_ids)
            return self.head(x - x.mean(1, keepdim=True) + self.layers[0](x, attention_mask))

    diagnosis = diagnose_model(Leaking(Layer(noise(2, N), CAUSAL)), batches())
    (finding,) = (f for f in diagnosis.findings if f.name == "broken causality")
    assert (finding.severity, finding.layer, finding.head) == ("severe", "", None)
    assert "no head that was watched" in finding.sentence


def test_a_prefix_that_may_look_ahead_is_a_warning_as_later_tokens_move_nothing():
    prefix = rg.causal() | rg.prefix(7)
    layers = [Layer(noise(2, N), CAUSAL), Layer(noise(2, N), CAUSAL), Layer(noise(2, N), prefix)]
    assert found(of(*layers)) == [("broken causality", "warning", 2, head) for head in (0, 1)]


def test_a_class_that_says_causal_is_held_to_it():
    from transformers import BertConfig, BertLMHeadModel

    config = BertConfig(
        vocab_size=41, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=31
    )
    texts = [{"input_ids": torch.randint(0, 41, (1, n))} for n in (23, 29)]
    wrong = diagnose_model(BertLMHeadModel(config), texts)
    assert {f.severity for f in wrong.findings if f.name == "broken causality"} == {"severe"}
    config.is_decoder = True
    right = diagnose_model(BertLMHeadModel(config), texts)
    assert found_names(right, "broken causality") == 0


# --- padding ---------------------------------------------------------------------------------------------------


def test_a_layer_that_ignores_its_padding_mask_is_severe():
    def model(passes):
        torch.manual_seed(3)
        return Model(Layer(noise(2, N)), Layer(noise(2, N), pass_padding=passes))

    ill = diagnose_model(model(False), batches())
    # Nobody said what is padding to this class; what it does with padding says it.
    assert ill.worst == "severe" and {f.name for f in ill.findings} == {"attention to padding"}
    assert diagnose_model(model(True), batches()).findings == ()


def test_heads_on_padding_are_named_where_the_padding_is_known():
    layer = Layer(noise(3, N))
    padding = torch.arange(37) < torch.tensor([[37], [23]])
    with rg.watch(layer, padding=padding) as record:
        layer(torch.randn(2, 37, 8))
    ill = diagnose(record)
    assert found_names(ill, "attention to padding") == 3
    share = float(record[0].received[1, 0, 23:].sum() / record[0].received[1, 0].sum())
    assert math.isclose(ill.findings[0].evidence["padding"], share / 2, rel_tol=1e-5)
    with rg.watch(layer, padding=padding) as record:
        layer(torch.randn(2, 37, 8), padding.long())
    well = diagnose(record)
    assert found_names(well, "attention to padding") == 0 and "attention to padding" in well.applied


def test_without_padding_the_rule_says_that_it_could_not_be_applied():
    diagnosis = diagnose(seen(noise(2, 53)))
    assert "attention to padding" in diagnosis.skipped


# --- not finite ------------------------------------------------------------------------------------------------


def test_scores_that_are_nan_are_severe():
    scores = noise(3, N)
    scores[1, 5, 3] = torch.nan
    diagnosis = of(Layer(scores, CAUSAL))
    assert ("not finite", "severe", 0, 1) in found(diagnosis)
    assert {f.head for f in diagnosis.findings if f.layer} == {1}
    json.loads(diagnosis.to_json())


def test_an_output_that_is_nan_is_severe_though_no_weight_is():
    model = Model(Layer(noise(2, N), CAUSAL))
    with torch.no_grad():
        model.head.bias[3] = torch.nan
    assert found(diagnose_model(model, batches()), "not finite") == [("not finite", "severe", None, None)]


# --- collapse, focus, sinks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [None, CAUSAL], ids=["bidirectional", "causal"])
def test_all_queries_on_one_key_is_collapse_and_a_previous_token_head_is_not(mask):
    scores = torch.cat((on_key(N, 13), previous(N), noise(1, N)))
    assert found(of(Layer(scores, mask))) == [("collapse", "warning", 0, 0)]


def test_a_whole_layer_of_collapse_is_severe():
    scores = torch.cat((on_key(N, 13), on_key(N, 7)))
    diagnosis = of(Layer(scores, CAUSAL), Layer(noise(2, N), CAUSAL))
    assert found(diagnosis, "collapse") == [("collapse", "severe", 0, 0), ("collapse", "severe", 0, 1)]
    assert diagnosis.findings[0].evidence["key"] == 13


def test_an_induction_head_is_honest_focus():
    ids = torch.randint(0, 29, (31,)).repeat(2)[:N]
    queries = torch.arange(N)
    scores = torch.zeros(2, N, N)
    scores[0, queries, (queries - 30).clamp(min=0)] = 12.0
    scores[1] = noise(1, N)[0]
    diagnosis = diagnose(seen(scores, CAUSAL, tokens=[f"w{i}" for i in ids.tolist()]))
    assert found_names(diagnosis, "collapse") == 0


@pytest.mark.parametrize("mask", [None, CAUSAL], ids=["bidirectional", "causal"])
def test_a_head_that_rests_on_the_first_token_is_a_note(mask):
    scores = torch.cat((on_key(N, 0), noise(1, N)))
    assert found(of(Layer(scores, mask))) == [("sink", "note", 0, 0)]


@pytest.mark.parametrize(("word", "rule"), [("[SEP]", "sink"), (".", "sink"), ("house", "collapse")])
def test_tokens_tell_a_separator_from_a_word(word, rule):
    tokens = [f"w{i}" for i in range(53)]
    tokens[19] = word
    diagnosis = diagnose(seen(torch.cat((on_key(53, 19), noise(1, 53))), tokens=tokens))
    assert [(f.name, f.head) for f in diagnosis.findings] == [(rule, 0)]


def test_a_short_causal_text_is_no_sink():
    # By chance alone the first of five tokens gets 46 % of the mass.
    diagnosis = diagnose(seen(noise(3, 5, 0.3), CAUSAL))
    assert not diagnosis.findings
    assert "collapse" in diagnosis.skipped and "eight queries" in diagnosis.skipped["vanishing"]


@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("kind", ["uniform", "previous", "first", "word"])
def test_short_texts_raise_nothing(tokens, kind):
    scores = {
        "uniform": torch.zeros(1, tokens, tokens),
        "previous": previous(tokens),
        "first": on_key(tokens, 0),
        "word": on_key(tokens, tokens // 2),
    }[kind]
    for mask in (None, CAUSAL):
        assert diagnose(seen(scores.repeat(2, 1, 1), mask)).findings == ()


def test_tokens_that_few_queries_can_see_are_no_collapse():
    # The last keys of a causal text: every query that sees one of them attends it.
    scores = torch.cat((on_key(53, 47), noise(1, 53)))
    assert found_names(diagnose(seen(scores, CAUSAL)), "collapse") == 0


# --- uniform heads --------------------------------------------------------------------------------------------


def test_a_uniform_head_is_a_warning_and_a_model_of_them_severe():
    one = of(Layer(torch.cat((torch.zeros(1, N, N), noise(2, N))), CAUSAL))
    assert found(one) == [("vanishing", "warning", 0, 0)]
    # A broad head is not uniform.
    assert of(Layer(noise(2, N, 0.3), CAUSAL)).findings == ()
    every = of(Layer(torch.zeros(2, N, N), CAUSAL), Layer(torch.zeros(2, N, N), CAUSAL))
    assert {finding.severity for finding in every.findings} == {"severe"}
    assert "is it trained" in every.findings[0].sentence


def test_an_interval_that_reaches_below_the_threshold_raises_nothing():
    layer = Layer(noise(1, N))
    records = []
    for strength in (0.0, 0.0, 0.2):
        layer.scores = noise(1, N) * strength
        with rg.watch(layer) as record:
            layer(torch.randn(1, 53, 8))
        records.append(record)
    assert found_names(diagnose(records[:2]), "vanishing") == 1
    mixed = diagnose(records)
    assert found_names(mixed, "vanishing") == 0 and mixed.texts == 3


# --- scores ------------------------------------------------------------------------------------------------------


def test_large_scores_without_entropy_are_entropy_collapse_and_a_sharp_head_is_not():
    scores = torch.cat((previous(N, 150.0), own_token(N), noise(1, N)))
    assert found(of(Layer(scores, CAUSAL))) == [("entropy collapse", "warning", 0, 0)]


def test_scores_beyond_a_thousand_are_score_growth():
    diagnosis = of(Layer(torch.cat((previous(N, 1500.0), noise(1, N))), CAUSAL))
    assert ("score growth", "severe", 0, 0) in found(diagnosis)
    assert diagnosis.findings[0].value == pytest.approx(1500.0, rel=1e-4)


def test_thresholds_are_those_of_the_monitor():
    from regard.training import entropy_collapse, score_growth, uniform_heads

    ill = of(Layer(torch.cat((previous(N, 1500.0), torch.zeros(1, N, N))), CAUSAL))
    bounds = {finding.name: finding.threshold for finding in ill.findings}
    rules = {
        "entropy collapse": entropy_collapse(),
        "score growth": score_growth(),
        "vanishing": uniform_heads(),
    }
    assert bounds == {name: rule.threshold for name, rule in rules.items()}


def test_a_softmax_without_gradient_is_a_warning_where_scores_are_large():
    scores = torch.cat((previous(N, 90.0), own_token(N, 40.0), noise(1, N)))
    diagnosis = of(Layer(scores, CAUSAL))
    assert found(diagnosis) == [("softmax saturation", "warning", 0, 0)]
    assert diagnosis.findings[0].evidence["sum_squares"] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("statistics", [None, ("allowed", "entropy"), (*rg.statistics.TABLE,)])
def test_causality_is_told_by_offsets_or_by_the_map(statistics):
    layers = [Layer(noise(2, 211), CAUSAL), Layer(noise(2, 211), CAUSAL), Layer(noise(2, 211))]
    model = Model(*layers)
    for length in (2, 13, 61, 211):
        with rg.watch(model, statistics=statistics) as record:
            model(torch.randint(0, 31, (1, length)))
        ill = found(diagnose(record), "broken causality")
        assert ill == [("broken causality", "severe", 2, head) for head in (0, 1)], length
        del record.calls[2]
        assert found(diagnose(record), "broken causality") == []
