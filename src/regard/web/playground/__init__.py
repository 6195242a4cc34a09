"""A layer of attention to play with: its state, its tokens, its weights, and what one sees, in words and numbers."""

from regard.web.playground.answer import Answer, answer, prepare
from regard.web.playground.state import KINDS, PlaygroundState

__all__ = ["KINDS", "Answer", "PlaygroundState", "answer", "prepare"]
