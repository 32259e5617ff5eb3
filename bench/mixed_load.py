"""Does anything leak, hang or fail for the wrong reason under a load of all kinds? Minutes of it on a real cluster.

    python bench/mixed_load.py [--minutes N] [--nodes N] [--clients N] [--seed N] [--blas auto]

Clients ask in all four dialects, whole and streamed, for answers of random lengths and options; they hang up at random
tokens, before the first one and in the middle of a request, send what can't be answered, and now and then come all at once.
``errors`` counts by kind what was refused as it should be, ``unexpected`` what went otherwise; ``hung`` are requests
that didn't end. ``growth`` says, for each process, by how much it grew at rest from the end of the warm-up to the end: memory in
MB, files, threads; for each stage also whose caches it holds, and what they take. At both times the same prompts have just
been asked, so that the caches that are kept on purpose are the same ones.
"""

import sys
from pathlib import Path
from runpy import run_module

HERE = Path(__file__).resolve()

if __name__ == "__main__":
    sys.path.remove(str(HERE.parent))  # bench/http.py is not what libraries mean by ``import http``
    sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "tests")]
    run_module("end_to_end.load.bench", run_name="__main__")
