"""p2pexo turns the machines on a desk into one place to run a language model."""

__version__ = "0.1.0"
