"""A CA of one's own, and a server's certificate by it."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class OwnCa:
    certificate: Path
    """Of the CA, in PEM form."""
    chain: Path
    """The server's key and certificate."""
    server: ssl.SSLContext


def own_ca(folder: Path, names: Sequence[str]) -> OwnCa:
    """A CA, and a server with a certificate for these DNS names and 127.0.0.1."""
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a CA of one's own")])

    def builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder(issuer_name=authority, subject_name=subject, public_key=key.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now - day).not_valid_after(now + day)
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
        return made.add_extension(own, critical=False)

    root = (
        builder(authority, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(False, False, False, False, False, True, True, False, False),  # signs certificates
            critical=True,
        )
        .sign(authority_key, hashes.SHA256())
    )
    hosts = [*map(x509.DNSName, names), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    leaf = (
        builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]), server_key)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    certificate, chain = folder / "ca.pem", folder / "server.pem"
    certificate.write_bytes(root.public_bytes(pem))
    key = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain.write_bytes(key + leaf.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    return OwnCa(certificate, chain, context)
