"""Every public callable with every argument of a wrong kind: a Regard error or a result, nothing else.

A table holds one valid call for each; the sweep varies one argument at a time. What is public is found, not listed.
"""

import inspect
import resource
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import regard as rg
from helpers.cases import draw_tensors
from helpers.wrong_values import WRONG
from regard import RegardError

QUERY, KEY, VALUE = (t.float() for t in draw_tensors(1, 2, 1, 3, 5, 4, 4))
SECONDS, BYTES = 10.0, 3 << 30  # what one call may take


@dataclass
class Valid:
    """A valid call: its arguments, and what is done with the result, so that nothing wrong is found too late."""

    arguments: dict[str, Any] = field(default_factory=dict)
    then: Callable[[Any], Any] = lambda result: result
    positional: tuple[str, ...] = ()


def tokens(module: nn.Module) -> Any:
    return module(torch.ones(1, 3, 8))


def cross(module: nn.Module) -> Any:
    return module(torch.ones(1, 3, 8), torch.ones(1, 2, 8))


def attending(mask: Any) -> Any:
    return rg.attend(QUERY, KEY, VALUE, mask=mask)


def biased(bias: Any) -> Any:
    return rg.attend(QUERY, KEY, VALUE, bias=bias)


def scored(score: Any) -> Any:
    return rg.nn.MultiHeadAttention(8, 2, score=score)(torch.ones(1, 3, 8))


def observed(choice: Any) -> Any:
    return rg.observe(QUERY, KEY, VALUE, statistics=choice, align="start")


def observation() -> Any:
    return rg.observe(QUERY, KEY, VALUE, map=4, top=1)


def trained() -> nn.Module:
    module = nn.Linear(2, 2)
    module(torch.ones(2)).sum().backward()
    return module


def record() -> Any:
    model = nn.MultiheadAttention(8, 2, batch_first=True)
    with rg.watch(model) as seen:
        model(*[torch.ones(1, 3, 8)] * 3)
    return seen


SPEC = {
    "mask": rg.causal(),
    "bias": None,
    "scale": 0.5,
    "softcap": 3.0,
    "sink_logit": torch.zeros(2),
    "align": "end",
}
QK = {"query": QUERY, "key": KEY}
QKV = QK | {"value": VALUE}
HEADS = {"embed_dim": 8, "num_heads": 2}
LAYER = HEADS | {
    "norm_first": True, "norm_type": "layer", "activation": "gelu", "dropout": 0.0, "inner_dropout": 0.0, "bias": True,
    "init": "xavier", "layer_norm_eps": 1e-5, "checkpoint": False, "dim_feedforward": 9,
}  # fmt: skip
CROSS = {"cross_attention": True, "memory_dim": 8, "attention": None}
ATTENTION = HEADS | {
    "num_kv_heads": 1, "head_dim": 4, "value_dim": 3, "memory_dim": None, "bias": True, "dropout": 0.1,
    "output_dropout": 0.1, "init": "xavier", "mask": None, "positions": None, "qk_norm": "rms", "score": None,
    "scale": 0.5, "softcap": 2.0, "sink": True,
}  # fmt: skip
SLICES = {"rows": slice(0, 2), "columns": slice(1, 3)}
X = torch.ones(1, 3, 8)
# Of tokens that differ, unlike those of X: scores that are all alike have one entropy at any temperature.
TEXT = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(0))
TABLE: dict[str, dict[str, Valid]] = {
    "regard": {
        "attend": Valid(QKV | SPEC | {"dropout": 0.1}),
        "observe": Valid(QKV | SPEC | {"statistics": ["entropy"], "top": 1, "map": 2, "engine": "auto"}),
        "weights": Valid(QK | SPEC | SLICES), "causal": Valid(),
        "near": Valid({"before": 2, "after": 1}, attending), "strided": Valid({"step": 2}, attending),
        "random_blocks": Valid({"count": 1, "block": 2, "seed": 3, "keys": 5}, attending),
        "global_tokens": Valid({"indices": [0, 3]}, attending), "prefix": Valid({"length": 3}, attending),
        "documents": Valid({"ids": [0, 0, 1, 1, 1]}, attending),
        "padding": Valid({"lengths": 3, "start": 1}, attending),
        "dense": Valid({"keep": torch.ones(3, 5) > 0, "drop": None, "additive": None, "offset": 2}, attending),
        "alibi": Valid({"slopes": [0.5, 1.0]}, biased), "relative": Valid({"table": torch.zeros(2, 5)}, biased),
        "load": Valid({"path": "nowhere"}),
        "watch": Valid({
            "model": nn.Identity(), "tokens": None, "source_tokens": None, "padding": None, "source_padding": None,
            "layers": None, "keep": "statistics", "statistics": None, "map": 4, "top": 1, "fused": False,
        }),
        "intervene": Valid({
            "model": nn.Identity(), "heads": [(0, 0)], "kind": None, "mask": None, "temperature": 2.0, "softcap": None,
            "output": None, "top": None, "uniform": False,
        }),
        "survey": Valid({
            "model": rg.nn.MultiHeadAttention(8, 2), "batches": [{"x": torch.ones(1, 3, 8)}], "tokenizer": None,
            "statistics": None, "layers": None, "folder": None, "resume": True, "tokens": 9, "batch_size": 1, "map": 4,
            "shard": 2, "progress": None,
        }),
    },
    "regard.statistics": {
        "first": Valid({"count": 2}, observed), "local": Valid({"radius": 2}, observed),
        "group": Valid({"name": "a", "keys": [0, 1], "size": 5}, observed),
        "matching": Valid(
            {"name": "a", "query_ids": torch.arange(5), "key_ids": torch.arange(5), "low": -2, "high": 0}, observed),
        "token_groups": Valid({"ids": torch.arange(5), "tokens": list("abcde"), "causal": True}, observed),
    },
    "regard.nn": {
        "MultiHeadAttention": Valid(ATTENTION, tokens),
        "Additive": Valid({"query_dim": 4, "key_dim": 4, "hidden_size": 3, "bias": True}, scored),
        "Concat": Valid({"query_dim": 4, "key_dim": 4, "hidden_size": 3}, scored),
        "General": Valid({"query_dim": 4, "key_dim": 4, "num_heads": 2}, scored),
        "Tempered": Valid({"score": rg.nn.Cosine(), "temperature": 0.5, "learned": True}, scored),
        "Alibi": Valid({"num_heads": 2}, lambda made: rg.nn.MultiHeadAttention(8, 2, positions=made)(X)),
        "Relative": Valid(
            {"num_heads": 2, "max_distance": 9, "num_buckets": 8, "bidirectional": True},
            lambda made: rg.nn.MultiHeadAttention(8, 2, positions=made)(X),
        ),
        "Rotary": Valid(
            {"dim": 4, "base": 10.0, "scaling_factor": 2.0, "interleaved": True},
            lambda made: rg.nn.MultiHeadAttention(8, 2, positions=made)(X),
        ),
        "Learned": Valid({"max_positions": 7, "embed_dim": 8}, tokens),
        "Sinusoidal": Valid({"embed_dim": 8, "base": 100.0}, tokens),
        "FeedForward": Valid({
            "embed_dim": 8, "dim_feedforward": 9, "activation": "relu", "bias": True, "dropout": 0.1,
            "output_dropout": 0.1, "init": "zero",
        }, tokens),
        "EncoderLayer": Valid(LAYER | {"attention": {"scale": 0.5}}, tokens),
        "Encoder": Valid(LAYER | {"num_layers": 1, "attention": {"scale": 0.5}}, tokens),
        "DecoderLayer": Valid(LAYER | CROSS, cross), "Decoder": Valid(LAYER | CROSS | {"num_layers": 1}, cross),
        "LinearAttention": Valid(HEADS | {
            "features": rg.nn.Elu(), "causal": True, "head_dim": 3, "memory_dim": 8, "bias": True}, tokens),
        "PositiveRandom": Valid(
            {"dim": 4, "num_features": 3, "seed": 1}, lambda made: rg.nn.LinearAttention(8, 2, features=made)(X)),
        "LandmarkAttention": Valid(HEADS | {
            "num_landmarks": 2, "iterations": 3, "head_dim": 3, "memory_dim": 8, "bias": True}, tokens),
        "ProjectedAttention": Valid(HEADS | {
            "max_keys": 5, "rank": 2, "share_kv": True, "head_dim": 3, "memory_dim": 8, "bias": True}, tokens),
        "RecurrentEncoder": Valid({
            "input_size": 8, "hidden_size": 3, "cell": "gru", "num_layers": 2, "bidirectional": True,
            "dropout": 0.1}, tokens),
        "RecurrentDecoder": Valid({
            "input_size": 8, "hidden_size": 4, "memory_dim": 8, "score": rg.nn.General(4, 8), "order": "luong",
            "cell": "gru"}, cross),
        "Cache": Valid({"model": rg.nn.MultiHeadAttention(8, 2)}),
        "linear_attention": Valid(QKV | {
            "query": QUERY[:, :, :3], "key": KEY[:, :, :3], "value": VALUE[:, :, :3], "features": rg.nn.Elu(),
            "causal": True, "mask": rg.padding(3), "state": None}),
        "linear_weights": Valid(QK | SLICES | {"features": None, "causal": False, "mask": rg.prefix(3)}),
        "landmark_attention": Valid(QKV | {"num_landmarks": 2, "iterations": 3, "scale": 0.5}),
        "landmark_weights": Valid(QK | SLICES | {"num_landmarks": 2, "iterations": 3, "scale": 0.5}),
        "projected_attention": Valid(QKV | {"project_key": torch.ones(2, 5), "project_value": torch.ones(2, 5)}),
        "projected_weights": Valid(
            QK | SLICES | {"project_key": torch.ones(2, 5), "project_value": torch.ones(2, 5)}),
        "errors_by_rank": Valid(QKV | {"ranks": [1, 2], "approximate": rg.nn.by_slots(), "causal": False}),
        "by_features": Valid({"seed": 1, "causal": False}, lambda made: made(2, QUERY, KEY, VALUE)),
        "by_landmarks": Valid({"iterations": 2}, lambda made: made(2, QUERY, KEY, VALUE)),
        "by_slots": Valid({}, lambda made: made(2, QUERY, KEY, VALUE)),
        "Config": Valid({
            "vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 9, "num_key_value_heads": 1, "head_dim": 3, "value_dim": 3, "cross_attention": True,
            "memory_dim": 4, "max_position_embeddings": 5, "type_vocab_size": 2, "gated": True, "bias": True,
            "norm_type": "rms",
            "qk_norm": "rms", "sink": True, "embedding_norm": True, "final_norm": True, "pooler": True,
            "tie_word_embeddings": True}, rg.nn.parameters_of),
        "parameters_of": Valid({"config": rg.nn.Config(11, 8, 1, 2)}),
        "parts_of": Valid({"config": rg.nn.Config(11, 8, 1, 2)}),
        "from_torch": Valid({"module": nn.MultiheadAttention(8, 2, batch_first=True)}),
        "to_torch": Valid({"module": rg.nn.MultiHeadAttention(8, 2)}),
        "state_from_torch": Valid({"state": nn.MultiheadAttention(8, 2, batch_first=True).state_dict()}),
        "state_to_torch": Valid({"state": rg.nn.MultiHeadAttention(8, 2).state_dict()}),
        "initialize": Valid({"name": "small", "inner": [torch.ones(2, 2)], "outer": torch.ones(2, 2), "biases": []}),
    },
    "regard.analysis": {
        "diagnose": Valid({"seen": record()}),
        "diagnose_model": Valid({
            "model": rg.nn.MultiHeadAttention(8, 2), "batches": [{"x": torch.ones(1, 3, 8)}], "tokenizer": None,
            "statistics": None, "token_names": None, "layers": None, "tokens": 9, "batch_size": 1, "ablate": False,
            "loss": None, "budget": 0.1, "progress": None,
        }),
        "Setting": Valid(
            {"heads": 2, "dim": 4, "window": 3, "rank": 2, "hidden": 5},
            lambda made: rg.analysis.predicted("window", 7, made)),
        "by_distance": Valid({"norms": torch.ones(3, 3)}),
        "exponent": Valid({"lengths": [1, 2, 4], "values": [1.0, 2.0, 4.1], "longest": 4}),
        "gradient_norms": Valid({"model": trained(), "parts": None}),
        "jacobian_norms": Valid({"module": nn.Tanh(), "x": X[0, :, :2]}),
        "least_within": Valid({"seconds": 1.0, "points": [(1.0, 2.0)]}),
        "predicted": Valid({"mechanism": "exact", "tokens": 5, "setting": None}),
        "compare": Valid({
            "a": rg.nn.MultiHeadAttention(8, 2), "b": rg.nn.MultiHeadAttention(8, 2),
            "inputs": {"x": torch.ones(1, 5, 8)}}),
        "softmax_by_width": Valid({"dims": [4], "keys": 5, "seed": 1}),
        "softmax_gradient": Valid({"weights": torch.ones(3) / 3}),
    },
    "regard.analysis.remedies": {
        "temperature": Valid({
            "model": rg.nn.MultiHeadAttention(8, 2), "batches": [{"x": TEXT}], "target": 0.6,
            "heads": [("MultiHeadAttention", 0)]}),
        "sharpening": Valid({
            "model": rg.nn.MultiHeadAttention(8, 2), "batches": [{"x": TEXT}], "most": 0.5,
            "heads": [("MultiHeadAttention", 0)]}),
        "dropout": Valid({"model": rg.nn.MultiHeadAttention(8, 2), "p": 0.1}),
        "query_key_norm": Valid({"model": rg.nn.MultiHeadAttention(8, 2), "gains": True}),
        "initialization": Valid({"model": rg.nn.MultiHeadAttention(8, 2), "variance": 1.0, "depth": True}),
        "length_curriculum": Valid({"step": 1, "shortest": 2, "longest": 9, "steps": 7, "multiple": 2}),
    },
    "regard.draw": {
        "entropy": Valid({"entropy": torch.ones(2, 3), "allowed": 4, "batch": 0, "tokens": None, "title": "a"}),
        "flow": Valid({"norms": {"a": torch.ones(3, 3)}, "title": "a", "note": "b"}),
        "remedies": Valid({
            "outcomes": {"a": {"none": [2.0, 3.0], "b": [1.0]}}, "without": "none", "name": "loss", "title": "a"}),
        "heads": Valid({"weights": torch.ones(2, 3, 3), "batch": 0, "shared": True, "scale": "sqrt", "title": "a"}),
        "heatmap": Valid({
            "weights": torch.rand(3, 3), "head": None, "batch": 0, "tokens": None, "key_tokens": None,
            "allowed": None, "truth": None, "values": True, "scale": "linear", "limit": 1.0, "cell": 1, "title": "a"}),
        "overlay": Valid({
            "image": torch.rand(4, 4), "weights": torch.rand(1, 2, 2), "words": ["a"], "truth": None, "title": "a",
            "note": ""}),
        "passage": Valid({"sentences": ["a", "b"], "masses": [0.5, 0.5], "support": [0], "title": "a", "note": ""}),
        "positions": Valid({"encoding": torch.rand(5, 4), "dimensions": [0, 1], "title": "a"}),
        "series": Valid({
            "panels": [rg.draw.Panel("a", "b", "c", {"d": ([1, 2], [3, 4])})], "abreast": 2, "dashes": (),
            "title": "a", "note": ""}),
        "Panel": Valid(
            {"name": "a", "across": "b", "up": "c", "lines": {"d": ([1, 2], [3, 4])}, "logs": ""},
            lambda made: rg.draw.series([made])),
        "sharpness": Valid({"scores": [1.0, 2.0], "coldest": 0.5, "hottest": 2.0, "title": "a"}),
        "strength": Valid({"outputs": {"a": torch.rand(3, 4)}, "tokens": None, "title": "a"}),
        "structure": Valid({"heads": 2, "dim": 4, "kv_heads": 1, "mask": True, "title": "a"}),
        "temperatures": Valid({"scores": [1.0, 2.0], "temperatures": [0.5, 1.0], "tokens": None, "title": "a"}),
    },
    "regard.scale": {
        "Layout": Valid({"stretches": ((range(3),), (range(3, 5),))}),
        **dict.fromkeys(("contiguous", "zigzag"), Valid({"tokens": 5, "processes": 2, "start": 1}))},
    "regard.learn": {
        "check": Valid({"function": lambda query, key, value: value, "name": "attention"}),
        "check_file": Valid({"path": rg.learn.checking.__file__, "name": "attention"}), "exercises": Valid(),
        "exercise": Valid({"name": "attention"}), "grade": Valid({"question": rg.learn.concepts(1)[0], "answer": 0}),
        "quiz": Valid({"source": record(), "inputs": None, "model": None, "tokens": None, "count": 0, "seed": 1}),
        "concepts": Valid({"lesson": 3})},
    "regard.page": {"report": Valid({"record": record(), "title": "a", "rows": 3, "figures": (), "next_tokens": None})},
    "regard.training": {
        "Recipe": Valid({
            "max_steps": 5, "batch_size": 2, "learning_rate": 0.1, "lr_scheduler_type": "linear", "warmup_ratio": 0.1,
            "weight_decay": 0.1, "adam_beta1": 0.9, "adam_beta2": 0.9, "max_grad_norm": 1.0,
            "label_smoothing_factor": 0.1, "gradient_accumulation_steps": 1, "precision": "float32",
            "gradient_checkpointing": False, "seed": 1, "logging_steps": 1, "save_steps": 1, "eval_steps": 1,
            "monitor_steps": 1, "save_total_limit": 2}),
        "Monitor": Valid({
            "inputs": {"x": X}, "statistics": ("entropy",), "cells": 2, "pictures": 2, "layers": None, "every": 2,
            "rules": rg.training.RULES, "on_alarm": "record", "writers": ()}),
        "Rule": Valid({
            "name": "a", "statistic": "first", "threshold": 0.5, "above": True, "after": 1, "scores_above": 1.0,
            "advice": "b"}),
        "entropy_collapse": Valid({"below": 0.1, "scores_above": 10.0}), "score_growth": Valid({"above": 10.0}),
        "uniform_heads": Valid({"above": 0.9, "after": 3}), "not_finite": Valid({}),
    },
}  # fmt: skip
LEFT_OUT = {
    "regard": {"RegardError": "an error"},
    "regard.nn": dict.fromkeys(
        ("Cosine", "Dot", "Elu", "ScaledDot", "Features", "HeadPositions", "Score", "LinearState"), "no argument"
    ) | {"PUBLISHED": "a table", "DecoderState": "a result"},
    "regard.statistics": dict.fromkeys(("Choice", "Map", "Observation", "State", "Statistic", "Top"), "a result"),
    "regard.analysis": {"roles": "of a history", "flow": "a package"}
    | dict.fromkeys(("Diagnosis", "Finding"), "a result")
    | dict.fromkeys(("Cost", "Exponent", "Softmax", "Redundancy", "SparseHead", "SparsePlan"), "a result")
    | dict.fromkeys(("beyond", "distance_profile", "spans"), "of a record") | {"eviction_loss": "of a model"}
    | dict.fromkeys(("distances", "eviction", "redundancy", "sparsify"), "of a record with vectors")
    | dict.fromkeys(("importance", "mean_outputs", "prune", "load_pruned", "Pruned"), "of a model and its texts"),
    "regard.analysis.remedies": {"EntropyPenalty": "a result", "entropy_regularization": "of a training"},
    "regard.draw": {"findings": "of a diagnosis"}
    | dict.fromkeys(("history", "roles", "strip"), "of a history")
    | dict.fromkeys(("by_distance", "histograms", "relative_maps"), "of a profile")
    | {"changed": "of a table", "rollout": "of a record", "sparse_plan": "of a plan"}
    | dict.fromkeys(("norms", "norm_shares", "eviction", "redundancy"), "of a record with vectors"),
    "regard.scale": dict.fromkeys(("attend", "observe", "observe_long"), "of processes and folders: tests/scale"),
    "regard.learn": dict.fromkeys(("Case", "Choice", "Example", "Exercise", "Grade", "Message", "Picture"), "a result")
    | dict.fromkeys(("Question", "Variant", "Verdict"), "a result"),
    "regard.page": dict.fromkeys(("Part", "history", "histories"), "of a history")
    | {"profile": "of a profile", "findings": "of a diagnosis"},
    "regard.training": {"History": "a result", "Run": "a result", "train": "a training", "Alarm": "a result"}
    | dict.fromkeys(("MLflowWriter", "ParquetWriter", "TensorBoardWriter", "WandbWriter", "Writer"), "a client"),
}  # fmt: skip
OWN_CODE = {
    ("errors_by_rank", "approximate"): ("function", "type", "module"),
    ("survey", "progress"): ("function", "type", "module"),
    ("diagnose_model", "model"): ("module",),
    ("diagnose_model", "statistics"): ("function", "type", "module"),
    ("diagnose_model", "progress"): ("function", "type", "module"),
    ("temperature", "model"): ("module",),
    ("sharpening", "model"): ("module",),
    ("compare", "a"): ("module",),
    ("compare", "b"): ("module",),
    ("compare", "inputs"): ("dict",),
}  # whose errors are its own
CALLS = [
    pytest.param(package, name, argument, id=f"{package}.{name}-{argument}")
    for package, calls in TABLE.items()
    for name, valid in calls.items()
    for argument in valid.arguments
]


def public(package: str) -> Any:
    module: Any = rg
    for part in package.split(".")[1:]:
        module = getattr(module, part)
    return module


@contextmanager
def little_memory():
    """No more than so many bytes above what the process holds: what would take them is an error, not a wait."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + BYTES, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def run(function: Any, valid: Valid, changed: dict[str, Any]) -> None:
    result = function(**(valid.arguments | changed))
    if hasattr(result, "__enter__") and not isinstance(result, nn.Module | rg.training.Monitor):
        with pytest.raises(RegardError), result:  # a watch of what has no attention
            pass
    else:
        valid.then(result)


@pytest.mark.parametrize("package", [name for name in TABLE if hasattr(public(name), "__all__")])
def test_everything_public_is_in_the_table(package):
    names = {name for name in public(package).__all__ if callable(getattr(public(package), name))}
    assert names <= set(TABLE[package]) | set(LEFT_OUT[package])


@pytest.mark.parametrize(("package", "name"), [(p, n) for p, calls in TABLE.items() for n in calls])
def test_the_valid_call_is_valid_and_names_every_argument(package, name):
    function, valid = getattr(public(package), name), TABLE[package][name]
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = {p.name for p in inspect.signature(function).parameters.values() if p.kind not in kinds}
    assert named <= set(valid.arguments)
    if name != "load":  # of which no record stands at hand
        run(function, valid, {})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("package", "name", "argument"), CALLS)
def test_a_wrong_argument_is_a_regard_error_or_no_harm(package, name, argument, tmp_path, monkeypatch):
    # What is taken for a path is written here.
    monkeypatch.chdir(tmp_path)
    function, valid, faults = getattr(public(package), name), TABLE[package][name], []
    for kind, make in WRONG.items():
        if kind in OWN_CODE.get((name, argument), ()):
            continue
        start = time.perf_counter()
        try:
            with little_memory():
                run(function, valid, {argument: make()})
        except RegardError as error:
            if not str(error):
                faults.append(f"{kind}: an error without words")
        except Exception as error:
            faults.append(f"{kind}: {type(error).__name__}: {str(error)[:90]}")
        if time.perf_counter() - start > SECONDS:
            faults.append(f"{kind}: took {time.perf_counter() - start:.0f} s")
    assert faults == []
