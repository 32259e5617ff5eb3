"""A week of use in an hour: does anything grow, hang or stay behind where models come and go and nodes are restarted?

    python bench/week_of_use.py [--placements 200] [--requests 5000] [--restarts 100] [--minutes 60] [--seed N] [--nodes 3]
                                [--scripted] [--blas auto] [--deadline S]

On a real cluster, all at once and spread evenly over ``minutes``: models are placed on one machine or two and deleted again,
clients ask short questions in all four dialects, and nodes are restarted one after the other, by SIGTERM or by ``kill -9``.
In the first half any node may be struck; in the second one of them, the ``witness``, stays, so that it is seen whether it grows.
It takes as long as it takes: on a busy machine all of it comes later, and nothing is left out. A line a minute tells how far it is.

The last line is JSON. ``placed_by_requests`` are those of the placements that a request for a model brought about. ``answered`` requests and ``errors``, by what they say, are as they should be; ``cut`` are those whose own node
was struck; ``hung`` had no end within the deadline; ``unexpected`` is anything else, of requests, placements and restarts; ``failed`` are
placements that ended by themselves, and why. Pairs are a figure at the first and at the last: of the witness
the medians of the second and of the last quarter of its half; ``young`` are nodes just restarted, early ones and late ones; ``disk_mb``
are all homes, ``told_kb`` all documents of the overlay, over the whole time. ``flat`` says which of them are. ``in_step_s`` is
the time from a node's start until it shows the same members, leader and placements as another one. At the end
``idle_cpu`` is the share of a core that a node and its stages take, at most; ``children`` and ``orphans`` are the processes that are left once
all models are deleted, and ``all_again_s`` is the time until all nodes are together after a restart of all.
"""

import sys
from pathlib import Path
from runpy import run_module

HERE = Path(__file__).resolve()

if __name__ == "__main__":
    sys.path.remove(str(HERE.parent))  # bench/http.py is not what libraries mean by ``import http``
    sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "tests")]
    run_module("end_to_end.load.week", run_name="__main__")
