"""The structures that cross the border to C++: the mirror of native/abi.h, line by line. Knows nothing else."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_double, c_int64, c_void_p

TYPES = {"float32": 0, "bfloat16": 1, "float16": 2}
NO_BIAS, DENSE, ALIBI, RELATIVE = range(4)


class View(Structure):
    """A tensor (batch, heads, tokens, width); strides in elements."""

    _fields_ = [("data", c_void_p), ("batch", c_int64), ("head", c_int64), ("row", c_int64)]


class MaskPart(Structure):
    """One of the disjoint masks of a call."""

    _fields_ = [("code", c_void_p), ("tables", c_void_p), ("step", c_int64)]


class Call(Structure):
    """Everything that turns query and key into scores."""

    _fields_ = [
        *((name, c_int64) for name in ("batch", "heads", "kv_heads", "queries", "keys", "dim", "value_dim")),
        *((name, c_int64) for name in ("offset", "type", "threads", "halves")),
        *((name, View) for name in ("query", "key", "value")),
        *((name, c_double) for name in ("scale", "softcap")),
        ("masks", c_int64),
        ("mask", POINTER(MaskPart)),
        ("bias_kind", c_int64),
        ("bias", c_void_p),
        ("bias_stride", c_int64 * 4),
        ("bias_reach", c_int64),
        ("bias_blocks", c_int64),
    ]


class Want(Structure):
    """Which sums of the state are wanted, and where each linear column goes."""

    _fields_ = [
        *((name, c_int64) for name in ("output", "entropy", "squares", "count", "least", "top", "columns")),
        *((name, c_int64) for name in ("position", "square", "distance", "first", "first_count", "bands")),
        *((name, c_void_p) for name in ("band", "band_low", "band_high")),
        ("groups", c_int64),
        *((name, c_void_p) for name in ("group", "group_keys")),
        *((name, c_int64) for name in ("group_batch", "group_stride")),
        ("matches", c_int64),
        *((name, c_void_p) for name in ("match", "match_low", "match_high", "match_queries", "match_keys")),
        *((name, c_int64) for name in ("match_query_batch", "match_query_stride")),
        *((name, c_int64) for name in ("match_key_batch", "match_key_stride")),
    ]


class StateArrays(Structure):
    """The state of every row."""

    _fields_ = [
        (name, c_void_p)
        for name in ("m", "l", "u", "r", "c", "o", "count", "least", "top_scores", "top_keys")
    ]


class ColumnArrays(Structure):
    """What the second fold reads and writes."""

    _fields_ = [
        *((name, c_void_p) for name in ("m", "log_l", "received", "received_max")),
        *((name, c_int64) for name in ("cell", "grid_q", "grid_k", "origin", "first_key")),
        *((name, c_void_p) for name in ("total", "peak", "by_offset")),
        ("vectors", c_int64),
        *((name, c_void_p) for name in ("given", "weighted")),
    ]


class LookArrays(Structure):
    """What is read of the rows."""

    _fields_ = [
        *(
            (name, c_void_p)
            for name in (
                "lse",
                "entropy",
                "effective_keys",
                "max_weight",
                "min_weight",
                "sum_squares",
                "spread",
            )
        ),
        *((name, c_void_p) for name in ("columns", "argmax", "log_l", "cell_rows")),
    ]


class GradientArrays(Structure):
    """What the backward pass reads and writes."""

    _fields_ = [
        *((name, c_void_p) for name in ("m", "l", "u", "r", "c", "o")),
        *((name, c_void_p) for name in ("query", "key", "value", "bias")),
        ("bias_count", c_int64),
        ("bias_stride", c_int64 * 4),
    ]


# In the order in which `regard_size` of native/dispatch.cpp knows them.
STRUCTURES: tuple[type[Structure], ...] = (
    View,
    MaskPart,
    Call,
    Want,
    StateArrays,
    ColumnArrays,
    GradientArrays,
    LookArrays,
)
