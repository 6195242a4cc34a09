"""Everything that turns queries and keys into weights, as one frozen value."""

from regard.spec.bias import Alibi, Bias, Dense, Logarithm, Relative, ScoreMod, alibi, as_bias, relative
from regard.spec.spec import Spec, SpecArguments

__all__ = [
    "Alibi",
    "Bias",
    "Dense",
    "Logarithm",
    "Relative",
    "ScoreMod",
    "Spec",
    "SpecArguments",
    "alibi",
    "as_bias",
    "relative",
]
