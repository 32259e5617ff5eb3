"""How fast a machine computes, in the two loads that a language model puts on it."""

from attrs import frozen


@frozen
class ComputeSpeed:
    decode_bytes_per_s: float
    """Bytes of weights that are worked through to compute one token, each second."""
    prefill_flops_per_s: float
    """Floating point operations, two for each weight and token, in a prompt of some hundred tokens."""


def two_digits(value: float) -> float:
    """Rounded to two significant digits: what is measured again differs by less, and isn't worth telling."""
    return float(f"{value:.1e}")
