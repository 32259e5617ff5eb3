"""Do answers go on when a part of their ring is lost? Random faults on three real nodes, each against the undisturbed answer.

    python bench/failover.py [FAULTS] [--seed N] [--scripted] [--blas auto] [--tokens N] [--kinds KIND ...] [--only INDEX]

Three nodes run one model over two of them. Kind, victim, token, dialect, streaming and greedy or seeded are drawn from
the seed. ``equal`` counts answers that are, character for character, the undisturbed ones; ``lost`` and ``repeated`` count
characters; ``errors`` are answers that ended with one; ``failed`` are faults that could not be brought to their end, each of
them told of with its index, by which ``--only`` tries it again, and where its nodes' logs are. The next one meets a new cluster.
A pause is the longest gap between two pieces of a streamed answer from the fault on: ``pause_s`` of killed processes and
nodes, ``silent_pause_s`` of silent ones, ``leave_gap_s`` of nodes that leave as planned, the longest of all. Where the leader is
killed beside a ring that it takes no part in, ``leader_gap_ratio`` is the longest gap by the usual one, the median of the
undisturbed answer, and ``leader_reloads`` counts rings that became others. Dialects without a seed are asked greedily.
``s_per_fault`` is what the whole took, restarts and waits included.
"""

import sys
from pathlib import Path
from runpy import run_module

HERE = Path(__file__).resolve()

if __name__ == "__main__":
    sys.path.remove(str(HERE.parent))  # bench/http.py is not what libraries mean by ``import http``
    sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "tests")]
    run_module("end_to_end.faults.bench", run_name="__main__")
