"""A proxy in front of a webserver, with TLS of a private CA, that asks for a bearer token."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.worlds.http_server import Request, http_server

TOKEN = "of-the-proxy"
LOGIN = "https://login.example.com/sign-in"


@contextmanager
def token_proxy(folder: Path, target: str) -> Iterator[tuple[str, Path]]:
    """The proxy's address and the file of its certificate. Without the token it redirects."""

    def pass_on(request: Request) -> None:
        body = request.body()
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            request.answer(302, location=LOGIN)
            return
        answer = httpx.post(
            f"{target}{request.path}",
            content=body,
            headers={"content-type": "application/json"},
            timeout=60,
            trust_env=False,
        )
        kind = answer.headers["content-type"]
        request.answer(answer.status_code, answer.content, content_type=kind)

    certificate = made_certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, folder / "key.pem")
    with http_server(pass_on, context) as address:
        yield address, certificate


def made_certificate(folder: Path) -> Path:
    """A certificate of 127.0.0.1 that signs itself; its key is in `key.pem`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a private CA")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    certificate = folder / "ca.pem"
    certificate.write_bytes(made.public_bytes(pem))
    return certificate
