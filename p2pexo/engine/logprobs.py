"""Log probabilities as a client sees them: with the text and the bytes of each token."""

from collections.abc import Callable

from p2pexo.engine.batch import Sampled
from p2pexo.generation.events import Likelihood, TokenLogprobs


def token_logprobs(drawn: Sampled, token_bytes: Callable[[int], bytes]) -> TokenLogprobs | None:
    """None if they were not asked for. ``token_bytes``: what a token stands for, be it a part of a character."""
    if drawn.logprob is None:
        return None

    def likelihood(token: int, logprob: float) -> Likelihood:
        data = token_bytes(token)
        return Likelihood(token, data.decode(errors="replace"), tuple(data), logprob)

    return TokenLogprobs(likelihood(drawn.token, drawn.logprob), tuple(likelihood(*each) for each in drawn.top))
