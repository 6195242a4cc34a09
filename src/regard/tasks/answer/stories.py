"""Stories from a small grammar: people go to places, take things, drop them and give them away.

Knows a world and what is told of it, sentence by sentence; after the tasks of Weston et al. 2015 ("Towards AI-Complete
Question Answering"), written anew. Knows which sentences support an answer, and no model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

PEOPLE = (
    "Alice", "Bruno", "Clara", "David", "Emma", "Felix", "Grace", "Hugo", "Irene", "Jonas",
    "Karin", "Louis", "Maria", "Noah", "Olga", "Paul", "Rosa", "Simon", "Tara", "Victor",
)  # fmt: skip
PLACES = (
    "kitchen", "garden", "office", "hallway", "bedroom", "bathroom", "garage", "cellar",
    "attic", "school", "station", "library", "museum", "bakery", "harbour",
)  # fmt: skip
THINGS = (
    "ball", "apple", "book", "lamp", "cup", "key", "letter", "hat", "coin", "basket",
    "umbrella", "violin", "ring", "map", "candle",
)  # fmt: skip
ONE_IN = 5  # combinations that are held out

# Words of the trained model's vocabulary, as "harbour" is: another spelling would be unknown to it.
GOES = ("went to", "moved to", "travelled to")
TAKES = ("took", "picked up", "grabbed")
DROPS = ("dropped", "put down", "left")
GIVES = ("gave", "handed", "passed")


def held_out(first: str, second: str) -> bool:
    """Whether a person and a place, a thing or another person are kept for measuring: one in five of each kind.

    No sentence about the two is then in any story to train on, and held-out stories have no other sentences. Each
    person keeps a fifth of each kind, shared with others, so that people can still meet.
    """
    kinds = (PEOPLE, PLACES, THINGS)
    (one,) = (kind.index(first) for kind in kinds if first in kind)
    (other,) = (kind.index(second) for kind in kinds if second in kind)
    return (one - other) % ONE_IN == 0


@dataclass
class World:
    """Where everybody and everything is, and which sentence said so last.

    Attributes:
        held: whether only held-out combinations happen, or only the others.
        place: person → where, and the sentence that said so. holder: thing → who has it, and the sentence.
        lies: thing → where it lies, and the sentences that say so, once somebody put it there.
        sentences: what was told so far.
    """

    held: bool
    place: dict[str, tuple[str, int]] = field(default_factory=dict)
    holder: dict[str, tuple[str, int]] = field(default_factory=dict)
    lies: dict[str, tuple[str, tuple[int, int]]] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)

    def tell(self, draw: np.random.Generator, people: list[str], things: list[str]) -> None:
        """One more thing happens, of those that can; people go twice as often as they do anything else."""
        can = [self._go, self._go, self._take, self._drop, self._give]
        while True:
            if can[draw.integers(len(can))](draw, people, things):
                return

    def where(self, thing: str) -> tuple[str, tuple[int, ...]] | None:
        """Where a thing is, and the sentences that say so; None where the story does not say."""
        if thing in self.lies:
            return self.lies[thing]
        if thing not in self.holder:
            return None
        person, since = self.holder[thing]
        place, told = self.place[person]
        return place, tuple(sorted({since, told}))

    def _go(self, draw: np.random.Generator, people: list[str], _things: list[str]) -> bool:
        person, place = _pick(draw, people), _pick(draw, PLACES)
        here = self.place.get(person, ("", 0))[0]
        if place == here or held_out(person, place) != self.held:
            return False
        self.place[person] = (place, len(self.sentences))
        return self._say(f"{person} {_pick(draw, GOES)} the {place} .")

    def _take(self, draw: np.random.Generator, people: list[str], things: list[str]) -> bool:
        person, thing = _pick(draw, people), _pick(draw, things)
        if person not in self.place or thing in self.holder or held_out(person, thing) != self.held:
            return False
        if thing in self.lies and self.lies[thing][0] != self.place[person][0]:
            return False
        self.lies.pop(thing, None)
        self.holder[thing] = (person, len(self.sentences))
        return self._say(f"{person} {_pick(draw, TAKES)} the {thing} .")

    def _drop(self, draw: np.random.Generator, people: list[str], things: list[str]) -> bool:
        thing = _pick(draw, things)
        if thing not in self.holder:
            return False
        person, _ = self.holder.pop(thing)
        place, told = self.place[person]
        self.lies[thing] = (place, (told, len(self.sentences)))
        return self._say(f"{person} {_pick(draw, DROPS)} the {thing} .")

    def _give(self, draw: np.random.Generator, people: list[str], things: list[str]) -> bool:
        thing, other = _pick(draw, things), _pick(draw, people)
        if thing not in self.holder or other not in self.place:
            return False
        person = self.holder[thing][0]
        if person == other or self.place[person][0] != self.place[other][0]:
            return False
        if held_out(person, other) != self.held or held_out(other, thing) != self.held:
            return False
        self.holder[thing] = (other, len(self.sentences))
        return self._say(f"{person} {_pick(draw, GIVES)} the {thing} to {other} .")

    def _say(self, sentence: str) -> bool:
        self.sentences.append(sentence)
        return True


def _pick(draw: np.random.Generator, among: list[str] | tuple[str, ...]) -> str:
    return among[draw.integers(len(among))]
