"""What helps against sick attention: one small function for each remedy, which changes the model or what it is given.

Measured against each illness in docs/remedies.md; none of them helps against everything.
"""

from regard.analysis.remedies.dropout import dropout
from regard.analysis.remedies.entropy_regularization import EntropyPenalty, entropy_regularization
from regard.analysis.remedies.initialization import initialization
from regard.analysis.remedies.length_curriculum import length_curriculum
from regard.analysis.remedies.query_key_norm import query_key_norm
from regard.analysis.remedies.temperature import sharpening, temperature

__all__ = [
    "EntropyPenalty",
    "dropout",
    "entropy_regularization",
    "initialization",
    "length_curriculum",
    "query_key_norm",
    "sharpening",
    "temperature",
]
