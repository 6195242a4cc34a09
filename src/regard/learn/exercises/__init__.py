"""The exercises, in the order in which they are best done. Written as a learner writes: NumPy, without types."""

from __future__ import annotations

from regard.learn.exercises import attention, building, causal, cheaper, heads, positions, similarity

EXERCISES = (
    similarity.COSINE,
    similarity.SOFTMAX,
    attention.EXERCISE,
    heads.ONE_HEAD,
    causal.CAUSAL,
    cheaper.PADDING,
    heads.SPLIT,
    heads.MERGE,
    heads.CROSS,
    building.ADDITIVE,
    positions.ENCODING,
    positions.ROTARY,
    positions.BIAS,
    building.NORM,
    building.LOSS,
    cheaper.LINEAR,
    similarity.ENTROPY,
    causal.NEAR,
    cheaper.MERGING,
)
