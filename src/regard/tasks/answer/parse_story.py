"""What is true after a story that somebody told, so that an answer about it can be checked.

Knows the sentences of `stories` and what they change; a story that says anything else is not understood.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from regard.tasks.answer import stories
from regard.tasks.answer.data import Question, questions
from regard.tasks.answer.stories import World

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
    here, told = world.place[person]
    has, _ = world.holder.get(what, (None, 0))
    lies, _ = world.lies.get(what, (here, 0))
    if verb in stories.TAKES and other is None and has is None and lies == here:
        world.lies.pop(what, None)
        world.holder[what] = (person, now)
        return True
    if verb in stories.DROPS and other is None and has == person:
        world.holder.pop(what)
        world.lies[what] = (here, (told, now))
        return True
    if verb in stories.GIVES and other != person == has and world.place.get(other, ("", 0))[0] == here:
        world.holder[what] = (other, now)
        return True
    return False
