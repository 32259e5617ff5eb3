"""A peer-to-peer library: who is here, who leads, what everyone knows, how to talk."""
