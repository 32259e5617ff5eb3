"""Who may be at the other end of a link: exactly one certificate, made by the neighbour's own process.

Python's ``ssl`` always checks a chain, so each side takes the neighbour's self-made certificate as its only trust anchor.
"""

import datetime
import ssl
import tempfile

from attrs import field, frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LIFETIME = datetime.timedelta(days=3650)
"""Before and after now: the clocks of a desk's machines may be wrong. What really ends a certificate is its process."""


@frozen
class Credentials:
    """A certificate and its private key, which lives in this process alone."""

    certificate: str
    """PEM."""
    _private_key: str = field(repr=False)

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
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=neighbour)
        # `ssl` reads keys from files only. This one has owner-only rights and is gone a moment later.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(self._private_key + self.certificate)
            file.flush()
            context.load_cert_chain(file.name)
        return context


def make_credentials(name: str) -> Credentials:
    """A fresh key and a certificate for it that it signed itself; ``name`` is for people who look at it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LIFETIME)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private_key = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Credentials(certificate.public_bytes(serialization.Encoding.PEM).decode(), private_key.decode())
