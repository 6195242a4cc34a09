"""How one batch of texts is read: the model runs, a watch sees it, and the profile of that, or of its error, comes out.

Knows models, tokenizers and failures; it does not know where texts come from or where profiles go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from regard.record.profile import Failure, Profile
from regard.survey.batches import Batch, tokenized
from regard.watch import watch
from regard.watch.undisturbed import undisturbed

# Characters of an error that are written down.
MESSAGE = 400


@dataclass(frozen=True)
class Reader:
    """How a batch is read: the model, and the arguments of `survey` of these names."""

    model: nn.Module
    tokenizer: Callable[..., Any] | None
    statistics: Any
    layers: Any
    map: int | None
    tokens: int

    def profile(self, batch: Batch, first: int) -> Profile:
        """What a batch adds, with the failures of its texts, the number of whose first one is given."""
        try:
            return self._read(batch)
        # Whatever a model, its tokenizer or a hook finds to say about a text.
        except Exception as error:
            # One text can fail a whole batch: read one by one, the other texts are not lost with it.
            parts = batch.each()
            if len(parts) > 1:
                profile = Profile()
                for row, part in enumerate(parts):
                    profile = profile.merge(self.profile(part, first + row))
                return profile
            message = str(error)[:MESSAGE]
            numbers = range(first, first + batch.rows)
            return Profile(
                failures=tuple(Failure(number, type(error).__name__, message) for number in numbers)
            )

    def _read(self, batch: Batch) -> Profile:
        cut = 0
        if isinstance(batch.given, tuple):
            assert self.tokenizer is not None
            arguments, cut = tokenized(self.tokenizer, batch.given, self.tokens)
        else:
            arguments = dict(batch.given)
        statistics = self.statistics
        if callable(statistics):
            statistics = statistics(arguments)
        with undisturbed(self.model) as device:
            inputs = {
                name: value.to(device) if isinstance(value, Tensor) else value
                for name, value in arguments.items()
            }
            # The output is thrown away: that of the fold may stand in its place, which saves the model's own.
            settings = {"statistics": statistics, "layers": self.layers, "map": self.map, "fused": True}
            with watch(self.model, **settings) as record:
                self.model(**inputs)
        return replace(Profile().add(record), truncated=cut)
