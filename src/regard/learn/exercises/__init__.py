"""The exercises, in the order in which they are best done. Written as a learner writes: NumPy, without types."""

from __future__ import annotations

from regard.learn.exercises import attention, causal, heads, positions

EXERCISES = (
    attention.EXERCISE,
    heads.ONE_HEAD,
    causal.CAUSAL,
    positions.ENCODING,
    heads.SPLIT,
    heads.MERGE,
    heads.CROSS,
    positions.ROTARY,
    positions.BIAS,
    causal.NEAR,
)
