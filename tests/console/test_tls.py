"""The console beyond loopback: over TLS, in a browser that trusts the CA of its certificate."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from playwright.async_api import Browser, Error, async_playwright

from sandboxd.access.token_file import hash_of, line
from tests.console.conftest import CALLERS, FLAGS
from tests.console.tab import opened_tab
from tests.docker.daemon_process import DaemonProcess, running_daemon
from tests.ports import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("patient")]

HOST = "127.0.0.2"
"""Not an address that the daemon takes for loopback."""
NAME = "console.test"
ADDRESS = f"https://{NAME}"


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def daemon(
    ca: trustme.CA, tokens: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DaemonProcess]:
    directory: Path = tmp_path_factory.mktemp("tls")
    issued = ca.issue_cert(NAME)
    issued.private_key_pem.write_to_path(directory / "key")
    chain = (*issued.cert_chain_pems, ca.cert_pem)
    (directory / "cert").write_bytes(b"".join(blob.bytes() for blob in chain))
    (directory / "tokens").write_text(
        "\n".join(line(caller, hash_of(tokens[who])) for who, caller in CALLERS.items())
    )
    async with running_daemon(
        SANDBOXD_CONSOLE_PORT=str(free_port()),
        SANDBOXD_CONSOLE_HOST=HOST,
        SANDBOXD_CONSOLE_NAMES=NAME,
        SANDBOXD_TOKENS_FILE=str(directory / "tokens"),
        SANDBOXD_TLS_CERT=str(directory / "cert"),
        SANDBOXD_TLS_KEY=str(directory / "key"),
        POOL_SIZE="1",
    ) as daemon:
        yield daemon


@asynccontextmanager
async def browser_trusting(ca: trustme.CA | None) -> AsyncIterator[Browser]:
    flags = [*FLAGS[:-1], f"{FLAGS[-1]},MAP {NAME} {HOST},MAP other.test {HOST}"]
    if ca is not None:
        public = x509.load_pem_x509_certificate(ca.cert_pem.bytes()).public_key()
        encoded = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        pin = base64.b64encode(hashlib.sha256(encoded).digest()).decode()
        flags.append(f"--ignore-certificate-errors-spki-list={pin}")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=flags)
        yield browser
        await browser.close()


async def test_console_over_tls(
    ca: trustme.CA, daemon: DaemonProcess, tokens: dict[str, str], tmp_path: Path
) -> None:
    """A token and a link log in; terminal, upload and download work; another name, also under the
    same CA, and plain HTTP do not."""
    async with (
        browser_trusting(ca) as browser,
        opened_tab(browser, daemon, address=ADDRESS) as tab,
        opened_tab(browser, daemon, address=ADDRESS) as linked,
    ):
        page = tab.page
        await page.goto(tab.origin)
        assert await page.evaluate("() => window.isSecureContext")
        await page.fill("input[type=password]", tokens["ops"])
        await page.click("role=button[name='Log in']")
        await page.wait_for_selector("header >> text=ops (admin)")
        await tab.open_session("tls")
        await tab.type("echo over $((6*7))\n")
        await tab.shows("over 42")
        sent = tmp_path / "sent.txt"
        sent.write_text("over TLS")
        await page.set_input_files("[aria-label='Files to upload']", sent)
        await page.wait_for_selector("[data-path$='sent.txt']")
        async with page.expect_download() as download:
            await page.click("role=button[name='Download sent.txt']")
        assert (await (await download.value).path()).read_text() == "over TLS"
        await linked.log_in()
        assert linked.page.url.startswith(f"{ADDRESS}:{linked.port}/")
        assert tab.complaints == linked.complaints == []

        linked.expects_errors = True
        refused = await linked.page.goto(f"https://other.test:{tab.port}/")
        assert refused is not None
        assert refused.status == 421
        with pytest.raises(Error, match=r"ERR_EMPTY_RESPONSE|ERR_CONNECTION"):
            await linked.page.goto(f"http://{NAME}:{tab.port}/")
        await tab.close_sessions()


async def test_browser_without_the_ca_refuses(daemon: DaemonProcess) -> None:
    """What encrypts the connection is the certificate of this test's CA, and no other."""
    async with (
        browser_trusting(None) as browser,
        opened_tab(browser, daemon, address=ADDRESS) as tab,
    ):
        with pytest.raises(Error, match="ERR_CERT_AUTHORITY_INVALID"):
            await tab.page.goto(tab.origin)
