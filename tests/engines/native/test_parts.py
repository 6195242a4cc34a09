"""A mask is split into disjoint masks with steps, which together are the mask."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from masks.strategies import BATCH, HEADS, KEYS, OFFSET, QUERIES, leaves
from regard.engines.native.mask_program import FAR, parts
from regard.masks import And, Mask, Or, causal, global_tokens, near, prefix, strided


def strided_trees() -> st.SearchStrategy[Mask]:
    strides = st.integers(1, 9).map(strided)
    return st.recursive(
        strides | leaves(),
        lambda mask: st.one_of(
            mask.map(lambda m: ~m),
            st.builds(lambda a, b: a & b, mask, mask),
            st.builds(lambda a, b: a | b, mask, mask),
        ),
        max_leaves=7,
    )


@settings(max_examples=300)
@given(strided_trees(), st.sampled_from([0, 4, FAR]))
def test_parts_are_disjoint_and_make_up_the_mask(mask, largest):
    whole = mask.dense(QUERIES, KEYS, batch=BATCH, heads=HEADS)
    distance = torch.arange(QUERIES)[:, None] + OFFSET - torch.arange(KEYS)
    times = torch.zeros(BATCH, HEADS, QUERIES, KEYS, dtype=torch.int64)
    for part, step in parts(mask, largest):
        assert step == 1 or step <= largest
        in_class = distance % step == 0
        times += in_class if part is None else part.dense(QUERIES, KEYS, batch=BATCH, heads=HEADS) & in_class
    assert torch.equal(times, whole.expand_as(times).to(torch.int64))


def test_what_parts_are_made_of():
    assert parts(None) == ((None, 1),)
    assert parts(near(3)) == ((near(3), 1),)
    assert parts(strided(7)) == ((None, 7),)
    assert parts(causal() & strided(2)) == ((causal(), 2),)
    assert parts(strided(2) & strided(6) & causal()) == ((strided(2) & causal(), 6),)
    assert parts(near(3) | strided(8)) == ((None, 8), (near(3) & ~strided(8), 1))
    window = causal() & (near(3) | strided(8) & prefix(9) | global_tokens([0]))
    assert parts(window) == (
        (causal() & prefix(9), 8),
        (causal() & (near(3) | global_tokens([0])) & ~(strided(8) & prefix(9)), 1),
    )
    two = strided(8) | strided(12)
    assert parts(two) == ((None, 8), (~strided(8), 12))


def test_steps_that_would_not_pay_stay_in_the_mask():
    assert parts(near(3) | strided(3)) == ((near(3) | strided(3), 1),)
    assert parts(causal() & strided(8), largest=7) == ((causal() & strided(8), 1),)
    assert parts(causal() & strided(8) & strided(6), largest=7) == ((causal() & strided(8), 6),)
    assert parts(Or((strided(5),))) == ((None, 5),)
    assert parts(And((strided(5),))) == ((None, 5),)
