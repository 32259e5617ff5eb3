"""What the library's README shows and claims."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "networking/README.md").read_text()
TESTS = "\n".join(file.read_text() for file in (ROOT / "tests/networking").glob("test_*.py"))


def test_the_first_screen_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    program, printed = re.findall(r"```(?:python)?\n(.*?)```", README, re.DOTALL)[:2]
    file = tmp_path / "first_screen.py"
    file.write_text(program)
    done = subprocess.run([sys.executable, file], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+)`", README))))
def test_a_test_that_is_named_exists(name: str) -> None:
    assert re.search(rf"^def {name}\(", TESTS, re.MULTILINE)
