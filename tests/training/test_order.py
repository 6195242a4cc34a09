"""The order of examples depends on the place in the run alone, and so do random numbers that make a batch."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.tasks import tasks
from regard.training import train
from regard.training.order import InOrder, Shuffled, seeded
from training import tiny


@given(examples=st.integers(1, 37), turns=st.integers(1, 5), seed=st.integers(0, 2**40))
def test_each_turn_has_every_example_once(examples, turns, seed):
    shuffled = Shuffled(range(examples), examples * turns, seed)
    drawn = np.array([shuffled[place][1] for place in range(len(shuffled))]).reshape(turns, examples)
    assert (np.sort(drawn) == np.arange(examples)).all()
    assert [shuffled[place][0] for place in range(len(shuffled))] == list(range(examples * turns))
    backwards = [shuffled[place][1] for place in reversed(range(len(shuffled)))]
    assert backwards[::-1] == drawn.flatten().tolist()


def test_turns_and_seeds_differ():
    orders = {
        tuple(Shuffled(range(97), 97 * 3, seed)[97 * turn + place][1] for place in range(97))
        for seed in range(3)
        for turn in range(3)
    }
    assert len(orders) == 9


def test_random_numbers_of_a_batch_follow_from_its_place():
    noise = seeded(lambda examples: torch.rand(3) + sum(examples), 5)
    before = torch.get_rng_state()
    first, again, other = noise([(7, 1), (8, 2)]), noise([(7, 1), (8, 2)]), noise([(9, 1), (10, 2)])
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert not torch.equal(first, seeded(lambda examples: torch.rand(3) + sum(examples), 6)([(7, 1), (8, 2)]))
    assert torch.equal(torch.get_rng_state(), before)


def test_accelerators_keep_their_random_state(monkeypatch):
    """Dropout on a device goes on from batch to batch."""
    seeds = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    torch.manual_seed(1)
    assert seeds == [1]
    seeded(lambda examples: torch.rand(3), 5)([(7, 1)])
    (task,) = tasks("caption")
    task.new(30, 0)
    assert seeds == [1]


def test_examples_for_evaluation_come_once():
    assert [InOrder("abc")[place] for place in range(len(InOrder("abc")))] == [(0, "a"), (1, "b"), (2, "c")]


def test_every_update_sees_a_full_batch_of_the_stream(tmp_path):
    """Also where the data are fewer than a batch."""
    seen = []

    def collate(examples):
        batch = {name: torch.stack([each[name] for each in examples]) for name in examples[0]}
        seen.append(batch["input_ids"])
        return batch

    data = tiny.texts(5)
    train(tiny.gpt(), tiny.recipe(max_steps=4), data, collate=collate, folder=tmp_path, progress=False)
    stream = Shuffled(data, 24, 0)
    expected = torch.stack([stream[place][1]["input_ids"] for place in range(24)])
    assert [len(batch) for batch in seen] == [6, 6, 6, 6]
    assert torch.equal(torch.cat(seen), expected)
