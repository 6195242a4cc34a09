"""One sequence over many processes, and sequences that are gone through in stretches."""

from regard.scale.layout import Layout, contiguous, zigzag
from regard.scale.long import observe_long
from regard.scale.verbs import attend, observe

__all__ = ["Layout", "attend", "contiguous", "observe", "observe_long", "zigzag"]
