"""Reasoning and tool calls out of a model's text, as it comes: one grammar per family of models."""
