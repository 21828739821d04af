"""TLS of the listeners, with certificates that can be replaced while they serve."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import grpc


class CertificatesInvalid(Exception):
    """Certificate, key or CA cannot be used; the text says which and why."""


class Certificates:
    """Certificate and key, and the CA of client certificates if they are required."""

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        self._cert = cert
        self._key = key
        self._client_ca = client_ca
        self._fresh: grpc.ServerCertificateConfiguration | None = None
        self._latest: ssl.SSLContext
        self._asking: ssl.SSLContext
        """The same, for a listener that needs client certificates."""
        self.credentials: grpc.ServerCredentials = grpc.dynamic_ssl_server_credentials(
            self._read(), self._take_fresh, require_client_authentication=client_ca is not None
        )

    def reload(self) -> None:
        """Read the files again; new connections use their content."""
        self._fresh = self._read()

    def context(self, *, asks_clients: bool = False) -> ssl.SSLContext:
        """For a listener of HTTP. Each of its connections has the certificate that was read last.
        `asks_clients`: it needs a client certificate, if there is a CA for them."""

        def take_latest(connection: ssl.SSLObject, *_: object) -> None:
            connection.context = self._asking if asks_clients else self._latest

        context = self._load(asks_clients=asks_clients)
        context.sni_callback = take_latest
        return context

    def _take_fresh(self) -> Any:
        """Called for every connection, in a thread of the core; None means no change."""
        fresh, self._fresh = self._fresh, None
        return fresh

    def _read(self) -> grpc.ServerCertificateConfiguration:
        self._check()
        try:
            pair = (self._key.read_bytes(), self._cert.read_bytes())
            roots = self._client_ca.read_bytes() if self._client_ca else None
        except OSError as error:
            raise CertificatesInvalid(f"{error.filename}: {error.strerror}") from error
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=roots)

    def _check(self) -> None:
        """CertificatesInvalid if the files do not fit together. The core would notice only at the
        first connection, and say little."""
        latest, asking = self._load(), self._load(asks_clients=True)
        self._latest, self._asking = latest, asking

    def _load(self, *, asks_clients: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # Without this, OpenSSL would ask for a passphrase on the terminal.
            context.load_cert_chain(self._cert, self._key, password=lambda: b"")
        except (OSError, ssl.SSLError) as error:
            raise CertificatesInvalid(
                f"the certificate {self._cert} and the key {self._key} cannot be used "
                f"({_words(error)}); both have to be PEM, belong together and have no passphrase"
            ) from error
        if asks_clients and self._client_ca is not None:
            try:
                context.load_verify_locations(self._client_ca)
            except (OSError, ssl.SSLError) as error:
                raise CertificatesInvalid(
                    f"the CA {self._client_ca} cannot be used ({_words(error)}); it has to be PEM"
                ) from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _words(error: OSError) -> str:
    return error.strerror or str(error)
