"""Who may be at the other end of a link: exactly one certificate, made by the neighbour's own process.

Python's ``ssl`` always checks a chain, so each side takes the neighbour's self-made certificate as its only trust anchor.
"""

import ssl

from attrs import frozen

from networking.certificates import SelfSigned, make_self_signed


@frozen
class Credentials:
    """This process's own certificate, and the contexts in which it is shown to a neighbour."""

    _own: SelfSigned

    @property
    def certificate(self) -> str:
        """PEM."""
        return self._own.certificate

    def server_context(self, neighbour: str) -> ssl.SSLContext:
        """For accepting the neighbour that has this certificate (PEM), and no one else."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER, neighbour)
        # A session ticket would make the dialler's socket readable, which it takes for the end of the link.
        context.num_tickets = 0
        return context

    def client_context(self, neighbour: str) -> ssl.SSLContext:
        """For dialling the neighbour that has this certificate (PEM), and no one else."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT, neighbour)

    def _context(self, protocol: int, neighbour: str) -> ssl.SSLContext:
        context = self._own.context(protocol)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=neighbour)
        return context


def make_credentials(name: str) -> Credentials:
    """A fresh key and a certificate for it that it signed itself; ``name`` is for people who look at it."""
    return Credentials(make_self_signed(name))
