"""How often strangers may knock (pure): a bucket of tokens per source, and one for all of them together."""

from attrs import define, field, frozen

from networking.addresses import source


@frozen
class RateSettings:
    burst: int = 10
    """Knocks of one source, an address or an IPv6 /64, in a row. Raised, one stranger costs more handshakes; lowered, a flaky network is turned away."""
    refill_s: float = 6.0
    """Until a source may knock once more. Raised, patience is asked of honest machines, too; lowered, floods cost more."""
    burst_of_all: int = 60
    """Knocks of all sources in a row. Raised, a crowd costs more; lowered, it keeps honest machines out sooner."""
    refill_of_all_s: float = 0.5
    """Until anybody may knock once more."""
    sources: int = 256
    """Sources that are remembered. Raised, more memory; lowered, who has many addresses is forgotten sooner."""


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
    _sources: dict[str, _Bucket] = field(factory=dict[str, _Bucket])
    _all: _Bucket | None = None

    def allows(self, now: float, address: str) -> bool:
        """Whether a knock from that IP address may be answered; ``now`` in monotonic seconds. It counts if it is."""
        settings = self.settings
        key = source(address)
        bucket = self._sources.pop(key, None) or _Bucket(settings.burst, now)
        self._sources[key] = bucket  # the newest last, so that the oldest go first
        while len(self._sources) > settings.sources:
            del self._sources[next(iter(self._sources))]
        self._all = self._all or _Bucket(settings.burst_of_all, now)
        return bucket.take(now, settings.burst, settings.refill_s) and self._all.take(
            now, settings.burst_of_all, settings.refill_of_all_s
        )
