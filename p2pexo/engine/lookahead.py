"""A step that is begun before its batch has come: that of a sequence that travels alone through a ring of one.

All that its batch will say is known but the token, and that goes in as MLX's promise of it. So the machine never waits
for a token to be read, turned into text and sent back. If the next batch wants something else of the sequence, the step
was in vain.
"""

from attrs import frozen

from p2pexo.engine.batch import Batch, Entry
from p2pexo.engine.drawer import Drawn


@frozen
class Lookahead:
    entry: Entry
    """What the batch is expected to hold, and nothing else."""
    drawn: Drawn
    """What comes of it."""

    def is_wanted_by(self, batch: Batch) -> bool:
        return batch.entries == (self.entry,) and self.entry.sequence not in batch.release

    def is_foiled_by(self, batch: Batch) -> bool:
        """Whether something else is to become of the sequence; a batch of others leaves the step as it is."""
        sources = {each.fork.sequence for each in batch.entries if each.fork is not None}
        concerned = {*(each.sequence for each in batch.entries), *sources, *batch.release, *batch.keep}
        return self.entry.sequence in concerned and not self.is_wanted_by(batch)
