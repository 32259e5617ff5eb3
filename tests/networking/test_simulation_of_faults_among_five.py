"""Whatever happens to a cluster of five machines, the overlay keeps its promises. ``networking.simulated_run`` says what
happens, ``networking.simulated_invariants`` what is promised. Longer: ``make simulate SEEDS=0-9999``.
"""

import pytest

from networking.simulated_run import nodes_of, run_seed

SEEDS = [seed for seed in range(510) if nodes_of(seed) == 5]


@pytest.mark.parametrize("seed", SEEDS)
def test_all_promises_are_kept(seed):
    outcome = run_seed(seed)
    assert outcome.complaint is None, "\n".join([*outcome.story[-40:], outcome.headline])
    assert outcome.seconds >= 60
