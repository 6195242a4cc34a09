"""A monitor in a loop of one's own: what it sees, and that the training is what it would be without."""

import math

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import regard as rg
from regard.errors import AlarmWarning, ArgumentError, RecordError, TrainingError, WatchError
from regard.training import Alarm, History, Monitor, Rule
from training import tiny
from training.monitor import looped
from training.monitor.looped import trained


def checkpointed():
    model = tiny.gpt()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


WAYS = {
    "dropout": {},
    "eager": {"model": lambda: tiny.gpt(attn_implementation="eager")},
    "bfloat16": {"context": lambda: torch.autocast("cpu", torch.bfloat16)},
    "checkpointing": {"model": checkpointed},
}


@pytest.mark.parametrize("inputs", [False, True], ids=["passes", "batch"])
@pytest.mark.parametrize("way", WAYS)
def test_the_training_is_bit_for_bit_what_it_was(way, inputs):
    settings = dict(WAYS[way])
    make = settings.pop("model", tiny.gpt)
    weights, state = trained(None, model=make(), **settings)
    monitor = Monitor(tiny.batch(5) if inputs else None, every=3)
    monitored, other = trained(monitor, model=make(), **settings)
    assert tiny.same(weights, monitored) and torch.equal(state, other)
    assert monitor.history.steps == (0, 3, 6, 9, 12, 15, 18) and not monitor.alarms
    assert monitor.history.values.isfinite().all()


def truth(model, parts):
    """`(layers, heads)` each: entropy fraction, largest score, mass on the first key, received share, in float64."""
    eager = tiny.gpt(0.0, attn_implementation="eager").double()
    eager.load_state_dict(model.state_dict())
    scores = []
    original = nn.functional.softmax
    nn.functional.softmax = lambda x, *rest, **more: scores.append(x.double()) or original(x, *rest, **more)
    try:
        with torch.no_grad():
            seen = [torch.stack(eager(**part, output_attentions=True).attentions) for part in parts]
    finally:
        nn.functional.softmax = original
    weights = torch.cat(seen, 1)
    largest = [torch.cat(scores[layer :: tiny.LAYERS]).amax((0, 2, 3)) for layer in range(tiny.LAYERS)]
    choices = torch.arange(1, tiny.LENGTH + 1).double()
    fraction = (torch.special.entr(weights).sum(-1) / choices.log())[..., 1:].mean((1, 3))
    received = weights.sum(-2)
    share = (received / received.sum(-1, keepdim=True)).amax(-1).mean(1)
    return fraction, torch.stack(largest), weights[..., 0].mean((1, 3)), share


def test_the_numbers_are_those_of_the_joint_batch():
    model = tiny.gpt(0.0)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.7)
    monitor, parts = Monitor(every=1), looped.batches(1)[0]
    monitor.step(model)
    for part in parts:
        model(**part)
    monitor.finish()
    fraction, largest, first, share = truth(model, parts)
    for name, expected in (
        ("entropy_fraction", fraction),
        ("largest_score", largest),
        ("first", first),
        ("received_share", share),
    ):
        seen = monitor.history.of_statistic(name)[0].double()
        assert torch.allclose(seen, expected.flatten(), rtol=2e-5, atol=2e-5), name
    assert not monitor.history.of_statistic("nonfinite").any()


def test_the_largest_score_and_the_mass_of_a_learned_sink():
    torch.manual_seed(5)
    layer = rg.nn.MultiHeadAttention(24, 3, sink=True)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.7)
    x = torch.randn(2, 7, 24)
    with rg.watch(layer, keep="vectors", map=None) as record:
        layer(x)
    spec = record[0].spec
    scores = record[0].query.double() @ record[0].key.double().mT * spec.scale
    sink = spec.sink_logit.double().view(1, -1, 1, 1).expand(2, -1, 7, 1)
    mass = torch.cat((scores, sink), -1).softmax(-1)[..., -1].mean((0, 2))
    monitor = Monitor()
    monitor.step(layer)
    layer(x)
    monitor.finish()
    assert torch.allclose(monitor.history.of_statistic("sink")[0].double(), mass, atol=1e-5)
    seen = monitor.history.of_statistic("largest_score")[0].double()
    assert torch.allclose(seen, scores.amax((0, 2, 3)), rtol=1e-5)


def test_a_look_begins_and_ends_with_its_step():
    model = tiny.gpt()
    monitor = Monitor(every=2)
    before = len(model._forward_hooks), len(model._forward_pre_hooks)
    for step in range(3):
        monitor.step(model)
        assert (len(model._forward_hooks) > before[0]) is (step != 1)
        model(**tiny.batch(2))
    assert monitor.history.steps == (0,)
    monitor.close()
    assert monitor.history.steps == (0, 2)
    assert (len(model._forward_hooks), len(model._forward_pre_hooks)) == before


def test_a_step_goes_on_where_a_run_was_resumed():
    model, monitor = tiny.gpt(), Monitor(every=5)
    for step in range(13, 17):
        monitor.step(model, step)
        model(**tiny.batch(2))
    monitor.close()
    assert monitor.history.steps == (15,)
    later = Monitor(every=5)
    later.history = monitor.history
    with pytest.raises(RecordError, match="must come later than step 15, got step 0"), later:
        later.step(model)
        model(**tiny.batch(2))


def test_what_is_not_run_with_gradients_is_said():
    model, monitor = tiny.gpt(), Monitor()
    monitor.step(model)
    with torch.no_grad():
        model(**tiny.batch(2))
    with pytest.raises(
        WatchError, match="GPT2LMHeadModel must be run with gradients.* from step 0 to the next"
    ):
        monitor.step(model)


def test_a_compiled_model_is_refused():
    compiled = torch.compile(tiny.gpt())
    with pytest.raises(WatchError, match=r"compiled by torch.compile.*_orig_mod"):
        Monitor().step(compiled)


def test_a_pass_that_fails_leaves_nothing_and_the_next_one_counts():
    model, monitor = tiny.gpt(0.0), Monitor(every=1)
    bad = {"input_ids": torch.full((1, 3), tiny.VOCABULARY)}
    monitor.step(model)
    with pytest.raises(IndexError):
        model(**bad)
    call = nn.Module.__call__
    model(**tiny.batch(2))
    monitor.finish()
    assert nn.Module.__call__ is call and "regard" not in call.__module__
    assert monitor.history.steps == (0,)
    with pytest.raises(IndexError), Monitor() as other:
        other.step(model)
        model(**bad)
    assert not other.history.steps and not model._forward_hooks


def test_parts_that_are_called_without_the_model_are_seen():
    """As a training step of Lightning does, which never calls the module itself."""

    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(
                [nn.Embedding(11, 8), rg.nn.MultiHeadAttention(8, 2), nn.Linear(8, 11)]
            )

    holder, monitor = Holder(), Monitor()
    monitor.step(holder)
    x = torch.randint(11, (2, 5))
    for part in holder.parts:
        x = part(x)
    monitor.close()
    assert [layer.name for layer in monitor.history.layers] == ["parts.1"]


def test_recomputed_passes_are_not_counted_twice():
    layer, seen = rg.nn.MultiHeadAttention(8, 2), []
    monitor = Monitor()
    monitor.step(layer)
    x = torch.randn(2, 5, 8, requires_grad=True)
    checkpoint(layer, x, use_reentrant=False).sum().backward()
    (numbers,) = (monitor._open[2],)
    # How many queries the mean is of.
    seen.append(int(next(iter(numbers.sums.values()))["entropy"][1][0]))
    monitor.close()
    assert seen == [10]


def broken(model):
    with torch.no_grad():
        model.transformer.h[1].attn.c_attn.weight[:, 0] = torch.nan
    return model


def test_nan_raises_its_alarm():
    monitor, model = Monitor(every=1, on_alarm="record"), broken(tiny.gpt(0.0))
    monitor.step(model)
    model(**tiny.batch(2))
    monitor.close()
    alarm = monitor.alarms[0]
    assert (alarm.rule, alarm.layer, alarm.head, alarm.step) == ("not finite", "transformer.h.1.attn", 0, 0)
    assert "nonfinite is 1, above 0" in str(alarm) and "checkpoint before this step" in alarm.sentence
    assert len({(alarm.layer, alarm.head) for alarm in monitor.alarms}) == len(monitor.alarms)


@pytest.mark.parametrize("action", ["record", "warn", "raise", "function"])
def test_what_is_done_about_an_alarm(action):
    heard: list[Alarm] = []
    model = broken(tiny.gpt(0.0))
    monitor = Monitor(every=1, on_alarm=heard.append if action == "function" else action)

    def look():
        monitor.step(model)
        model(**tiny.batch(2))
        monitor.finish()

    if action == "raise":
        with pytest.raises(
            TrainingError, match=r"step 0: not finite in transformer.h.1.attn, head 0: nonfinite is 1"
        ):
            look()
    elif action == "warn":
        with pytest.warns(AlarmWarning, match="step 0: not finite") as warned:
            look()
            look()
        assert len(warned) == 1
    else:
        look()
        look()
    assert heard == (monitor.alarms if action == "function" else [])
    # Look after look the same heads: one alarm each.
    assert {alarm.step for alarm in monitor.alarms} == {0}


def history(**values):
    """A history of one step of two layers of two heads."""
    layers = tiny_layers()
    table = torch.tensor([list(row) for row in values.values()])[None]
    return History(layers=layers, statistics=tuple(values), steps=(7,), values=table)


def tiny_layers():
    from regard.record.history import Layer

    return tuple(Layer(f"layers.{i}.attention", "self", 2, 0, 0, 0, 0) for i in (0, 1))


def test_rules_are_about_single_heads():
    seen = history(
        entropy_fraction=(0.05, 0.05, 0.9999, math.nan), largest_score=(101.0, 99.0, 5000.0, math.nan)
    )
    found = {
        rule.name: [(alarm.layer, alarm.head) for alarm in rule.alarms(seen)] for rule in rg.training.RULES
    }
    assert found == {
        "entropy collapse": [("layers.0.attention", 0)],
        "score growth": [("layers.1.attention", 0)],
        # Before step 1 000 every head may still be uniform.
        "uniform head": [],
        "not finite": [],
    }
    late = rg.training.uniform_heads(after=7).alarms(seen)
    assert [(alarm.layer, alarm.head, round(alarm.value, 4)) for alarm in late] == [
        ("layers.1.attention", 0, 0.9999)
    ]
    assert Rule("own", "unknown", 1.0).alarms(seen) == [] == Rule("own", "first", 1.0).alarms(History())
    # Without scores nobody knows whether low entropy is a fault.
    assert rg.training.entropy_collapse().alarms(history(entropy_fraction=(0.0, 0.0, 0.0, 0.0))) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0}, "every must be at least 1, got 0"),
        ({"every": True}, "every must be a whole number, got True"),
        (
            {"on_alarm": "shout"},
            "on_alarm must be one of 'record', 'warn', 'raise' or a function, got 'shout'",
        ),
        ({"rules": [print]}, r"rules\[0\] must be a Rule"),
        ({"writers": [3]}, r"writers\[0\] must have the methods scalars and close, got 3"),
        ({"layers": ["nothing"]}, "layers must name modules of GPT2LMHeadModel, got 'nothing'"),
    ],
)
def test_bad_settings_are_said(settings, message):
    with pytest.raises(ArgumentError, match=message):
        Monitor(**settings).step(tiny.gpt())


def test_a_look_needs_a_batch():
    with pytest.raises(
        ArgumentError, match="inputs must be given for a look at a model that nobody runs, got None"
    ):
        Monitor().look(tiny.gpt())
