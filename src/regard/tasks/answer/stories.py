"""Stories from a small grammar: people go to places, take things, drop them and give them away.

Knows the state of a world after each sentence, and which sentences support an answer; knows no model. After the tasks
of Weston et al. 2015 ("Towards AI-Complete Question Answering"), written anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

# These lists, in this order, make the ids of the vocabulary: another order would be another data set.
PEOPLE = (
    "Alice",
    "Bruno",
    "Clara",
    "David",
    "Emma",
    "Felix",
    "Grace",
    "Hugo",
    "Irene",
    "Jonas",
    "Karin",
    "Louis",
    "Maria",
    "Noah",
    "Olga",
    "Paul",
    "Rosa",
    "Simon",
    "Tara",
    "Victor",
)
PLACES = (
    "kitchen",
    "garden",
    "office",
    "hallway",
    "bedroom",
    "bathroom",
    "garage",
    "cellar",
    "attic",
    "school",
    "station",
    "library",
    "museum",
    "bakery",
    "harbour",
)
THINGS = (
    "ball",
    "apple",
    "book",
    "lamp",
    "cup",
    "key",
    "letter",
    "hat",
    "coin",
    "basket",
    "umbrella",
    "violin",
    "ring",
    "map",
    "candle",
)
ONE_IN = 5  # combinations for each one that is held out

# Words of the trained model's vocabulary, as "harbour" is: another spelling would be unknown to it.
GOES = ("went to", "moved to", "travelled to")
TAKES = ("took", "picked up", "grabbed")
DROPS = ("dropped", "put down", "left")
GIVES = ("gave", "handed", "passed")


def held_out(first: str, second: str) -> bool:
    """Whether the combination of a person with a place, a thing or another person is held out: one in five of each.

    No sentence about the two is then in any story to train on, and held-out stories have no other sentences.

    >>> held_out("Alice", "Felix"), held_out("Alice", "Bruno")
    (True, False)
    """
    kinds = (PEOPLE, PLACES, THINGS)
    (one,) = (kind.index(first) for kind in kinds if first in kind)
    (other,) = (kind.index(second) for kind in kinds if second in kind)
    # By the difference and not by a hash: each person has a fifth of each kind, shared with others, so that people
    # still meet in held-out stories.
    return (one - other) % ONE_IN == 0


@dataclass
class World:
    """Where everybody and everything is, and which sentence said so last; sentences are counted from 0.

    Attributes:
        held: whether only held-out combinations happen, or only the others.
        place: person → the place, and the sentence that says so.
        holder: thing → the person who has it, and the sentence that says so.
        lies: dropped thing → the place, and the two sentences that say so.
        sentences: the story so far.
    """

    held: bool
    place: dict[str, tuple[str, int]] = field(default_factory=dict)
    holder: dict[str, tuple[str, int]] = field(default_factory=dict)
    lies: dict[str, tuple[str, tuple[int, int]]] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)

    def narrate(self, generator: np.random.Generator, people: list[str], things: list[str]) -> None:
        """Let one more thing happen, of those that can, and add its sentence.

        Args:
            generator: draws what happens. people, things: who and what may take part.
        """
        # People go somewhere twice as often as they do anything else.
        events = [self._go, self._go, self._take, self._drop, self._give]
        while True:
            # An event that cannot happen now changes nothing and returns False: another one is drawn.
            if events[generator.integers(len(events))](generator, people, things):
                return

    def where(self, thing: str) -> tuple[str, tuple[int, ...]] | None:
        """The place of a thing and the sentences that say so, in order; None where the story does not say."""
        if thing in self.lies:
            return self.lies[thing]
        if thing not in self.holder:
            return None
        person, took = self.holder[thing]
        place, went = self.place[person]
        # The holder may have gone elsewhere since.
        return place, tuple(sorted({took, went}))

    def _go(self, generator: np.random.Generator, people: list[str], _things: list[str]) -> bool:
        person, place = _pick(generator, people), _pick(generator, PLACES)
        here, _ = self.place.get(person, ("", 0))
        if place == here or held_out(person, place) != self.held:
            return False
        self.place[person] = (place, len(self.sentences))
        return self._say(f"{person} {_pick(generator, GOES)} the {place} .")

    def _take(self, generator: np.random.Generator, people: list[str], things: list[str]) -> bool:
        person, thing = _pick(generator, people), _pick(generator, things)
        if person not in self.place or thing in self.holder or held_out(person, thing) != self.held:
            return False
        # A thing of which nothing was told yet may be anywhere, so also where the person is.
        if thing in self.lies and self.lies[thing][0] != self.place[person][0]:
            return False
        self.lies.pop(thing, None)
        self.holder[thing] = (person, len(self.sentences))
        return self._say(f"{person} {_pick(generator, TAKES)} the {thing} .")

    def _drop(self, generator: np.random.Generator, people: list[str], things: list[str]) -> bool:
        thing = _pick(generator, things)
        if thing not in self.holder:
            return False
        person, _ = self.holder.pop(thing)
        place, went = self.place[person]
        self.lies[thing] = (place, (went, len(self.sentences)))
        return self._say(f"{person} {_pick(generator, DROPS)} the {thing} .")

    def _give(self, generator: np.random.Generator, people: list[str], things: list[str]) -> bool:
        thing, other = _pick(generator, things), _pick(generator, people)
        if thing not in self.holder or other not in self.place:
            return False
        person = self.holder[thing][0]
        if person == other or self.place[person][0] != self.place[other][0]:
            return False
        if held_out(person, other) != self.held or held_out(other, thing) != self.held:
            return False
        self.holder[thing] = (other, len(self.sentences))
        return self._say(f"{person} {_pick(generator, GIVES)} the {thing} to {other} .")

    def _say(self, sentence: str) -> bool:
        self.sentences.append(sentence)
        return True


def _pick(generator: np.random.Generator, among: list[str] | tuple[str, ...]) -> str:
    return among[generator.integers(len(among))]
