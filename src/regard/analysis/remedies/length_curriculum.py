"""Short sequences first. Knows steps and lengths, and nothing of models or data."""

from __future__ import annotations

from regard.checks.arguments import checked, whole
from regard.errors import ArgumentError


@checked
def length_curriculum(step: int, *, shortest: int, longest: int, steps: int, multiple: int = 1) -> int:
    """How long the sequences of a training step are: from the shortest to the longest in equal strides.

        length = shortest + (longest − shortest) · step / steps,  rounded down to a multiple

    Attention over few keys is easier to learn, as less of each weight's gradient is shared out, and such steps cost
    less (Press et al. 2021, "Shortformer", arXiv 2012.15832; Li et al. 2022, arXiv 2108.06084). A function of the step
    alone, so a training that is resumed has the lengths that it would have had.

    Args:
        step: how many updates there were.
        shortest: tokens at step 0.
        longest: tokens from step `steps` on.
        steps: until when it grows.
        multiple: lengths between the two are multiples of it.

    Raises:
        ArgumentError: a number below 1, a step below 0, or a longest that is below the shortest.

    Example:
        >>> [length_curriculum(step, shortest=8, longest=64, steps=100, multiple=8) for step in (0, 20, 50, 99, 100)]
        [8, 16, 32, 56, 64]
    """
    step, multiple = whole("step", step, 0), whole("multiple", multiple, 1)
    shortest, steps = whole("shortest", shortest, 1), whole("steps", steps, 1)
    if whole("longest", longest) < shortest:
        raise ArgumentError(f"longest must be at least the shortest, {shortest}, got {longest}")
    if step >= steps:
        return longest
    # In whole numbers: a quotient of floats may fall a hair short of a length.
    length = shortest + (longest - shortest) * step // steps
    return max(shortest, length // multiple * multiple)
