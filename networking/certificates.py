"""Certificates that a process makes for itself: who trusts one has been given exactly that one, or checks it by other means."""

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
class SelfSigned:
    """A certificate and its private key, which lives in this process alone."""

    certificate: str
    """PEM."""
    _private_key: str = field(repr=False)

    @property
    def encoded(self) -> bytes:
        """The certificate as it goes over the wire (DER)."""
        return ssl.PEM_cert_to_DER_cert(self.certificate)

    def context(self, protocol: int) -> ssl.SSLContext:
        """A context of TLS 1.3 that shows this certificate; whom it trusts is up to the caller."""
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        # `ssl` reads keys from files only. This one has owner-only rights and is gone a moment later.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(self._private_key + self.certificate)
            file.flush()
            context.load_cert_chain(file.name)
        return context


def make_self_signed(name: str) -> SelfSigned:
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
    return SelfSigned(certificate.public_bytes(serialization.Encoding.PEM).decode(), private_key.decode())
