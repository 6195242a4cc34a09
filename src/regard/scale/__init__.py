"""One sequence over many processes, and long calls in stretches that can be resumed."""

from regard.scale.layout import Layout, contiguous, zigzag
from regard.scale.long import observe_long
from regard.scale.verbs import attend, observe

__all__ = ["Layout", "attend", "contiguous", "observe", "observe_long", "zigzag"]
