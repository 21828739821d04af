"""Tokens and certificates of the daemon, which can be reloaded while it runs."""

from __future__ import annotations

import structlog

from sandboxd.access import Access, TokensInvalid
from sandboxd.config import Config
from sandboxd.service.transport.certificates import Certificates, CertificatesInvalid

log = structlog.get_logger()


class KeysUnusable(Exception):
    """Tokens or certificates cannot be used; the text says which and what to do."""


class Keyring:
    """The tokens and certificates that the settings name."""

    def __init__(self, config: Config) -> None:
        self._tokens_file = config.tokens_file
        self.access: Access | None = None
        """None if callers need no credentials."""
        self.certificates: Certificates | None = None
        """None without TLS."""
        try:
            if config.tokens_file is not None or config.tls_client_ca is not None:
                self.access = Access(config.tokens_file)
            if config.tls_cert is not None and config.tls_key is not None:
                self.certificates = Certificates(
                    config.tls_cert, config.tls_key, config.tls_client_ca
                )
        except TokensInvalid as error:
            raise KeysUnusable(f"the token file {config.tokens_file}: {error}") from error
        except CertificatesInvalid as error:
            raise KeysUnusable(str(error)) from error
        if config.is_on_network and self.certificates is None:
            log.warning("api.not_encrypted", host=config.host)

    def reload_tokens(self) -> None:
        """Read the file again; TokensInvalid leaves the tokens as they were."""
        if self.access is not None:
            self.access.reload()
            log.info("tokens.reloaded", count=len(self.access))

    def reload_certificates(self) -> None:
        """Read the files again; CertificatesInvalid leaves the certificates as they were."""
        if self.certificates is not None:
            self.certificates.reload()
            log.info("certificates.reloaded")
