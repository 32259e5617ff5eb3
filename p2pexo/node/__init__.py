"""The composition of a node: its settings, its parts and how they are joined."""
