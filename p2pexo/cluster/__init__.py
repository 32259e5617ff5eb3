"""What nodes tell of themselves, placement, and the leader's and the worker's duties."""
