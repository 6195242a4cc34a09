"""The exercises, in the order in which they are best done. Written as a learner writes: NumPy, without types."""

from __future__ import annotations

from regard.learn.exercises import (
    attention,
    building,
    causal,
    cheaper,
    heads,
    honesty,
    illness,
    merging,
    positions,
    reshaping,
    similarity,
    steps,
)

EXERCISES = (
    similarity.COSINE,
    similarity.SOFTMAX,
    attention.EXERCISE,
    heads.ONE_HEAD,
    causal.CAUSAL,
    cheaper.PADDING,
    reshaping.SPLIT,
    reshaping.MERGE,
    heads.CROSS,
    building.ADDITIVE,
    positions.ENCODING,
    positions.ROTARY,
    positions.BIAS,
    building.NORM,
    building.LOSS,
    steps.WARM_UP,
    steps.CLIP,
    cheaper.LINEAR,
    similarity.ENTROPY,
    honesty.SHARES,
    honesty.REMOVAL,
    illness.GRADIENT,
    illness.FRACTION,
    causal.NEAR,
    merging.MERGING,
)
