"""How many steps an episode has had. Pure.

Rule: steps are counted from the reset that began the chain. A batch's own count begins anew whenever some of it are reset by a mask;
    here it goes on.
"""


class StepCount:
    """Where a chain stands; `own` is the last step as its row says it, None where that is not known."""

    def __init__(self, count: int = 0, own: int | None = 0) -> None:
        self.count = count
        self._own = own

    def stepped(self, own: int) -> int:
        """Return which step this is; one that goes on from the last may have rows before it that could not be read."""
        before, self._own = self._own, own
        if before is None:
            self.count += 1
        else:
            self.count += own - before if own > before else own
        return self.count

    def begun(self) -> None:
        """Take note that some of the batch were reset."""
        self._own = 0
