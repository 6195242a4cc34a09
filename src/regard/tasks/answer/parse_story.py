"""What is true after a story that somebody wrote, so that an answer about it can be checked.

Reads the sentences and questions of `stories` and no others, and names the one that it could not read. A place that no
sentence names stays unknown: whoever takes a thing is somewhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from regard.errors import ArgumentError
from regard.tasks.answer import stories

QUESTIONS = "where is Alice ?, who has the key ? or where is the key ?"
_SENTENCE = re.compile(r"(\w+) ([a-z ]+?) the (\w+)(?: to (\w+))? \.")
_QUESTION = re.compile(r"(where is|who has) (the )?(\w+) \?")


@dataclass(frozen=True)
class Truth:
    """What a story says about a question.

    Attributes:
        answer: the word that is right; None: no word is.
        support: numbers of the sentences that the answer follows from, in order.
        why: why no word is right, in one sentence; empty where one is.
    """

    answer: str | None
    support: tuple[int, ...] = ()
    why: str = ""


def truth_of(question: str, sentences: Sequence[str]) -> Truth:
    """What a story says about a question.

    Args:
        question: such as `where is the key ?`. sentences: such as `Alice took the key .`, in order.

    Raises:
        ArgumentError: a sentence or the question is not understood, or cannot be after those before it; names it.
    """
    kind, name = _asked(question)
    world = _World()
    for number, sentence in enumerate(sentences):
        world.believe(sentence, number)
    return world.truth(kind, name)


@dataclass(frozen=True, eq=False)
class _Room:
    """A place, or None while no sentence names it, and the sentences that say so."""

    place: str | None
    support: tuple[int, ...]


@dataclass
class _World:
    """What is known after some sentences.

    Attributes:
        people: person → where they are. lies: thing → where it lies.
        holder: thing → who has it, and the sentence that says so.
    """

    people: dict[str, _Room] = field(default_factory=dict)
    lies: dict[str, _Room] = field(default_factory=dict)
    holder: dict[str, tuple[str, int]] = field(default_factory=dict)

    def believe(self, sentence: str, number: int) -> None:
        """Change what is known by a sentence.

        Raises:
            ArgumentError: it is not understood, or cannot be.
        """
        person, verb, what, other = _parsed(sentence)
        if verb in stories.GOES:
            self.people[person] = _Room(what, (number,))
            return
        self.people.setdefault(person, _Room(None, ()))
        holder, _ = self.holder.get(what, (None, number))
        if verb in stories.TAKES:
            if holder is not None:
                _refuse(sentence, f"{holder} has the {what}")
            if what in self.lies:
                self._meet(sentence, number, self.people[person], self.lies[what])
                del self.lies[what]
            self.holder[what] = (person, number)
            return
        if what in self.lies or holder not in (None, person):
            _refuse(sentence, f"{person} does not have the {what}")
        if other is None:
            self._drop(person, what, number)
            return
        if other == person:
            _refuse(sentence, f"{person} has the {what} already")
        self._meet(sentence, number, self.people[person], self.people.setdefault(other, _Room(None, ())))
        self.holder[what] = (other, number)

    def truth(self, kind: str, name: str) -> Truth:
        """The answer to "who has" something, or "where is" somebody or something."""
        if kind == "who has":
            if name in self.holder:
                person, number = self.holder[name]
                return Truth(person, (number,))
            if name in self.lies:
                return Truth(None, why=f"Nobody has the {name} at the end of the story.")
            return Truth(None, why=f"The story does not say who has the {name}.")
        shown, room = f"the {name}", self.lies.get(name)
        since: tuple[int, ...] = ()
        if name in stories.PEOPLE:
            shown, room = name, self.people.get(name)
        elif name in self.holder:
            person, number = self.holder[name]
            room, since = self.people[person], (number,)
        if room is None or room.place is None:
            return Truth(None, why=f"The story does not say where {shown} is.")
        return Truth(room.place, tuple(sorted({*room.support, *since})))

    def _drop(self, person: str, what: str, number: int) -> None:
        self.holder.pop(what, None)
        room = self.people[person]
        lies = _Room(room.place, (*room.support, number))
        if room.place is None:
            # The two are in one place for good, so that what is learned of one is learned of the other.
            self._replace(room, lies)
        self.lies[what] = lies

    def _meet(self, sentence: str, number: int, one: _Room, other: _Room) -> None:
        """Two rooms must be one.

        Raises:
            ArgumentError: they are known to be different.
        """
        if one.place is not None and other.place is not None:
            if one.place != other.place:
                _refuse(sentence, f"that is between the {one.place} and the {other.place}")
            return
        if one is other:
            return
        both = _Room(one.place or other.place, tuple(sorted({*one.support, *other.support, number})))
        for room in (one, other):
            # A room that had a name before keeps its own, shorter support.
            if room.place is None:
                self._replace(room, both)

    def _replace(self, room: _Room, by: _Room) -> None:
        for rooms in (self.people, self.lies):
            rooms.update({name: by for name, other in rooms.items() if other is room})


def _parsed(sentence: str) -> tuple[str, str, str, str | None]:
    """Person, verb, place or thing, and the person that gets something.

    Raises:
        ArgumentError: it is no sentence of the stories; says what these are.
    """
    match = _SENTENCE.fullmatch(sentence)
    if match is not None:
        person, verb, what, other = match.groups()
        moves = verb in stories.GOES and what in stories.PLACES
        handles = verb in (*stories.TAKES, *stories.DROPS) and what in stories.THINGS
        gives = verb in stories.GIVES and what in stories.THINGS and other in stories.PEOPLE
        if person in stories.PEOPLE and (gives or (other is None and (moves or handles))):
            return person, verb, what, other
    goes, takes, drops, gives_ = (
        " | ".join(verbs) for verbs in (stories.GOES, stories.TAKES, stories.DROPS, stories.GIVES)
    )
    raise ArgumentError(
        f"every sentence must be one that the stories have, and {sentence!r} is not understood: PERSON {goes} the "
        f"PLACE; PERSON {takes} | {drops} the THING; PERSON {gives_} the THING to PERSON. {_names()}"
    )


def _asked(question: str) -> tuple[str, str]:
    """ "who has" or "where is", and the person or the thing.

    Raises:
        ArgumentError: it is no question of the stories; says what these are.
    """
    match = _QUESTION.fullmatch(question)
    if match is not None:
        kind, article, name = match.groups()
        if article and name in stories.THINGS:
            return kind, name
        if not article and kind == "where is" and name in stories.PEOPLE:
            return kind, name
    raise ArgumentError(f"the question must be {QUESTIONS}, and {question!r} is not understood. {_names()}")


def _names() -> str:
    people, places, things = (", ".join(names) for names in (stories.PEOPLE, stories.PLACES, stories.THINGS))
    return f"People: {people}. Places: {places}. Things: {things}."


def _refuse(sentence: str, why: str) -> NoReturn:
    raise ArgumentError(f"the story must be one that can happen, and {sentence!r} cannot: {why}")
