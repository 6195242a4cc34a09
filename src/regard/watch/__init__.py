"""Every attention call of a model, observed while the model runs."""

from regard.watch.watch import watch

__all__ = ["watch"]
