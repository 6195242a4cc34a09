"""What may become of a file that is kept: single flipped bits, cuts, additions. For the tests of what is read back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path


def flips(content: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """`count` flips of single bits, half of them the first in order, the others drawn; all where there are no more."""
    chance = random.Random(seed)
    bits = 8 * len(content)
    first = min(bits, count // 2)
    places = [*range(first), *(chance.randrange(bits) for _ in range(count - first))]
    if bits <= count:
        places = list(range(bits))
    for place in places:
        altered = bytearray(content)
        altered[place // 8] ^= 1 << place % 8
        yield f"bit {place % 8} of byte {place // 8}", bytes(altered)


def cuts(content: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """The content cut at drawn places, and with something more at its end or its beginning."""
    chance = random.Random(seed)
    for _ in range(count):
        place = chance.randrange(len(content))
        yield f"cut at {place}", content[:place]
        yield f"without byte {place}", content[:place] + content[place + 1 :]
        yield f"byte {place} twice", content[: place + 1] + content[place:]
    for more in (b"\0", b" ", b"\n", b"{}", content):
        yield f"{more[:3]!r} after it", content + more
        yield f"{more[:3]!r} before it", more + content


def loaded_otherwise(
    path: Path,
    alterations: Iterator[tuple[str, bytes]],
    load: Callable[[], object],
    fault: type[Exception],
    same: Callable[[object], bool],
) -> tuple[int, list[str]]:
    """How many alterations of a file were tried, and which of them are neither refused by name nor load as the same."""
    whole, tried, wrong = path.read_bytes(), 0, []
    for what, altered in alterations:
        if altered == whole:
            continue
        tried += 1
        _put(path, altered)
        try:
            found = load()
        except fault as error:
            if path.name not in str(error):
                wrong.append(f"{path.name}, {what}: refused without its name: {error}")
        else:
            if not same(found):
                wrong.append(f"{path.name}, {what}: loads with another meaning")
    _put(path, whole)
    return tried, wrong


def _put(path: Path, content: bytes) -> None:
    """Overwrite in place: many file systems force a file to the disk that was emptied first."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()
