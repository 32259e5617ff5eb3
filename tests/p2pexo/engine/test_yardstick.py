import pytest

from p2pexo.engine import yardstick
from p2pexo.engine.speeds import two_digits
from p2pexo.engine.yardstick import Load, measure_speed


class Clock:
    """A machine on which each of these steps takes so many seconds."""

    def __init__(self, *steps_s: float) -> None:
        self._ends = iter([end for step_s in steps_s for end in (0.0, step_s)])

    def perf_counter(self) -> float:
        return next(self._ends)


def test_the_fastest_token_and_the_longest_prompt_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of width 64: 16 matrices of 64 x 64 fp32 weights and a norm of 64 more make 262,400 bytes."""
    tokens, prompts = (0.5, 0.25, 0.5), (0.5, 1.0, 0.75)
    monkeypatch.setattr(yardstick, "time", Clock(*tokens, *prompts))
    speed = measure_speed(dense=True, load=Load(64, 1, decode_s=1.0, prefill_s=0.9))
    assert speed.decode_bytes_per_s == 262_400 / 0.25
    assert speed.prefill_flops_per_s == 2 * 16 * 64 * 64 * 64 / 0.75, "64 rows, the second time"


def test_a_prompt_so_slow_that_it_must_do_is_not_computed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yardstick, "time", Clock(1.0, 1.0, 1.0, 4.0))
    speed = measure_speed(dense=True, load=Load(64, 2, decode_s=1.0, prefill_s=0.5))
    assert speed.prefill_flops_per_s == 2 * 2 * 16 * 64 * 64 * 32 / 4.0


def test_quantised_weights_count_as_they_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 bits for each weight, and for each 64 of them a scale and a bias of fp32."""
    monkeypatch.setattr(yardstick, "time", Clock(1.0, 1.0, 1.0, 4.0))
    speed = measure_speed(dense=False, load=Load(64, 1, decode_s=1.0, prefill_s=0.5))
    assert speed.decode_bytes_per_s == 16 * 64 * 64 * (4 + 2 * 32 / 64) / 8 + 4 * 64


def test_what_is_measured_again_a_little_differently_is_told_the_same() -> None:
    assert two_digits(1.234e9) == two_digits(1.249e9) == 1.2e9
    assert two_digits(0.000987) == 0.00099
    assert two_digits(0.0) == 0.0
