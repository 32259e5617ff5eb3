"""How much of a mixture of experts works on one token, told from the config and the names of the weights.

A router chooses a few experts for each token; those that are shared, and everything else, work on all tokens.
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, cast

from p2pexo.models.architectures import text_config
from p2pexo.models.directory import Tensor

_ROUTED = re.compile(r"(?:^|\.)(?:experts|switch_mlp|switch_glu)\.")
"""Weights of the experts that a router chooses from, each under a number or all in one tensor."""
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_CHOSEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
    "moe_k",
)


def share_of_experts(config: Mapping[str, Any]) -> Fraction:
    """Of the experts there are, those that are chosen for a token; 1 if the config says nothing of experts."""
    told = text_config(config)
    inner = told.get("ffn_config")  # where DBRX says it
    told |= cast(Mapping[str, Any], inner) if isinstance(inner, Mapping) else {}
    experts, chosen = _said(told, _EXPERTS), _said(told, _CHOSEN)
    return Fraction(min(chosen, experts), experts) if experts and chosen else Fraction(1)


def active_bytes(tensors: Iterable[Tensor], share: Fraction) -> int:
    """Of these weights those that a token is computed with."""
    routed = always = 0
    for tensor in tensors:
        if _ROUTED.search(tensor.name):
            routed += tensor.nbytes
        else:
            always += tensor.nbytes
    return always + int(routed * share)


def _said(config: Mapping[str, Any], names: Iterable[str]) -> int | None:
    """The first number above 0 that goes by one of these names."""
    values = (config.get(name) for name in names)
    return next((value for value in values if isinstance(value, int) and value > 0), None)
