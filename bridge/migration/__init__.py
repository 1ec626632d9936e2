"""Migration: everything that waits goes from a time index to level queues, or back. The bridges are stopped meanwhile.

A record keeps its id, its occurrence, its due time and the time at which it was taken in, and the ledger tells nothing of it: the schedule goes on. Each batch
is durable at its new place before it is forgotten at its old one, so a move that was interrupted is simply begun again. Towards the time index
nothing is doubled by that, because ids tell what is there already; towards level queues at most the one batch that was under way, and of that nothing
whose id the log of ids there knows.
"""

from .into import MovedIn, to_time_index
from .out import MovedOut, to_level_queues
from .place import Place, Tell, place

__all__ = ["MovedIn", "MovedOut", "Place", "Tell", "place", "to_level_queues", "to_time_index"]
