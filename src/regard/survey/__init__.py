"""Many texts: `survey` watches a model on each of them and merges what it saw into a profile."""

from regard.survey.corpora import OnRay
from regard.survey.corpus import Corpus
from regard.survey.survey import survey

__all__ = ["Corpus", "OnRay", "survey"]
