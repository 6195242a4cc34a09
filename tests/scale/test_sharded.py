"""One sequence over two, three and four processes is that on one device: every mask, statistic and gradient."""

from helpers import sharded


def test_drawn_calls_are_the_truth(tmp_path):
    wrong = sharded.start(sharded.check_cases, tmp_path, 30, 3)
    assert [fault for faults in wrong for fault in faults] == []
