"""What is true after a story that somebody told, so that an answer about it can be checked.

Knows the sentences of `stories` and what they change; a story that says anything else is not understood.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from regard.training.tasks import stories
from regard.training.tasks.answer import Question, questions
from regard.training.tasks.stories import World

_SENTENCE = re.compile(
    rf"({'|'.join(stories.PEOPLE)}) ([a-z ]+) the ([a-z]+)(?: to ({'|'.join(stories.PEOPLE)}))?\s*\.?"
)


def answer_to(question: str, sentences: Sequence[str]) -> Question | None:
    """The question with its answer and the sentences that support it; None where the story does not tell."""
    world = World(held=False)
    if not all(_hear(world, sentence) for sentence in sentences):
        return None
    for found in (each for kind in questions(world).values() for each in kind):
        if found[0] == question:
            return found
    return None


def _hear(world: World, sentence: str) -> bool:
    """Whether a sentence is understood and possible; what it says is then true."""
    match = _SENTENCE.fullmatch(sentence)
    if match is None:
        return False
    person, verb, what, other = match.groups()
    now = len(world.sentences)
    world.sentences.append(sentence)
    if verb in stories.GOES and what in stories.PLACES and other is None:
        world.place[person] = (what, now)
        return True
    if what not in stories.THINGS or person not in world.place:
        return False
    if verb in stories.TAKES and other is None:
        world.lies.pop(what, None)
        world.holder[what] = (person, now)
        return True
    if world.holder.get(what, ("", 0))[0] != person:
        return False
    if verb in stories.DROPS and other is None:
        world.holder.pop(what)
        place, told = world.place[person]
        world.lies[what] = (place, (told, now))
        return True
    if verb in stories.GIVES and other in world.place:
        world.holder[what] = (other, now)
        return True
    return False
