"""How often strangers may knock (pure): a bucket of tokens per address, and one for all of them together."""

from attrs import define, field, frozen


@frozen
class RateSettings:
    burst: int = 10
    """Knocks of one address in a row. Raised, one stranger costs more handshakes; lowered, a flaky network is turned away."""
    refill_s: float = 6.0
    """Until an address may knock once more. Raised, patience is asked of honest machines, too; lowered, floods cost more."""
    burst_of_all: int = 60
    """Knocks of all addresses in a row. Raised, a crowd costs more; lowered, it keeps honest machines out sooner."""
    refill_of_all_s: float = 0.5
    """Until anybody may knock once more."""
    addresses: int = 256
    """Addresses that are remembered. Raised, more memory; lowered, who has many addresses is forgotten sooner."""


@define
class _Bucket:
    tokens: float
    filled_at: float

    def take(self, now: float, burst: int, refill_s: float) -> bool:
        self.tokens = min(burst, self.tokens + (now - self.filled_at) / refill_s)
        self.filled_at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@define
class KnockRate:
    settings: RateSettings = field(factory=RateSettings)
    _addresses: dict[str, _Bucket] = field(factory=dict[str, _Bucket])
    _all: _Bucket | None = None

    def allows(self, now: float, address: str) -> bool:
        """Whether a knock from there may be answered; ``now`` in monotonic seconds. It counts if it is."""
        settings = self.settings
        bucket = self._addresses.pop(address, None) or _Bucket(settings.burst, now)
        self._addresses[address] = bucket  # the newest last, so that the oldest go first
        while len(self._addresses) > settings.addresses:
            del self._addresses[next(iter(self._addresses))]
        self._all = self._all or _Bucket(settings.burst_of_all, now)
        return bucket.take(now, settings.burst, settings.refill_s) and self._all.take(
            now, settings.burst_of_all, settings.refill_of_all_s
        )
