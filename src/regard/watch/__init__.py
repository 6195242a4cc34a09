"""Every attention call of a model, observed or changed while the model runs."""

from regard.watch.intervene import intervene
from regard.watch.plan import Change, Plan
from regard.watch.watch import watch

__all__ = ["Change", "Plan", "intervene", "watch"]
