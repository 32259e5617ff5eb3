"""Tokens counted as OpenAI's clients expect them: a prompt once, however many answers it got."""

from collections.abc import Mapping

from p2pexo.generation.events import Usage


def total_usage(by_choice: Mapping[int, Usage], per_prompt: int = 1) -> Usage:
    """The usage of all choices. Of each ``per_prompt`` choices in a row, which answer the same prompt, the prompt counts once."""
    prompts = [usage for choice, usage in by_choice.items() if choice % per_prompt == 0]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in prompts),
        completion_tokens=sum(usage.completion_tokens for usage in by_choice.values()),
        cached_tokens=sum(usage.cached_tokens for usage in prompts),
        reasoning_tokens=sum(usage.reasoning_tokens for usage in by_choice.values()),
    )


def openai_usage(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
