"""Runs inside a sandbox: tries to reach the victim in every way we can think of.

Prints one line of JSON: what each attempt got, and how many of them the proxy had to judge.
"""

import json
import socket
import ssl
import sys
import urllib.request

TLS, PLAIN, VICTIM = map(int, sys.argv[1:4])
PROXY = ("127.0.0.1", 3128)
outcomes = {}
judged = 0


def ask(raw, then=b""):
    """What the proxy answers to these bytes."""
    with socket.create_connection(PROXY, 10) as peer:
        peer.settimeout(15)
        peer.sendall(raw)
        answer = b""
        try:
            if then:
                while b"\r\n\r\n" not in answer:
                    answer += peer.recv(65536) or b"\r\n\r\n"
                if b" 200 " in answer.split(b"\r\n")[0]:
                    peer.sendall(then)
                    answer = b"tunnel: "
            while data := peer.recv(65536):
                answer += data
        except OSError as error:
            answer += b" " + type(error).__name__.encode()
    return answer


def check(name, answer):
    global judged
    judged += 1
    first = answer.split(b"\r\n")[0].decode("latin-1")
    is_refused = answer.startswith((b"HTTP/1.1 4", b"tunnel: \x15\x03\x01\x00\x02\x02\x31"))
    reached = b"VICTIM" in answer or b'"path"' in answer
    outcomes[name] = (
        f"refused {first[:200]}" if is_refused and not reached else f"REACHED {answer[:300]!r}"
    )


def hello(name):
    """The first bytes of a TLS client that asks for this name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def with_extension(data, kind, content):
    """The same ClientHello with one more extension."""
    body = bytearray(data[9:])
    at = 34
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at : at + 2], "big")
    at += 1 + body[at]
    size = int.from_bytes(body[at : at + 2], "big")
    added = kind.to_bytes(2, "big") + len(content).to_bytes(2, "big") + content
    body[at : at + 2] = (size + len(added)).to_bytes(2, "big")
    body += added
    message = b"\x01" + len(body).to_bytes(3, "big") + bytes(body)
    return b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message


HOSTS = """
127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.0.0.1 0177.0.0.1 017700000001
127.0.0.1. [::1] [::ffff:127.0.0.1] [::ffff:7f00:1] [0:0:0:0:0:ffff:7f00:1] [::127.0.0.1]
[64:ff9b::7f00:1] [2002:7f00:1::] [fe80::1] [fe80::1%25lo] 169.254.169.254 168.63.129.16
10.0.0.1 192.168.0.1 172.17.0.1 100.64.0.1 0.0.0.0 [::] localhost LOCALHOST localhost.
localhost.localdomain host.docker.internal victim.test allowed.test.victim.test
notallowed.test xallowed.test wide.test a.wide.test.victim.test allowed.test@victim.test
victim.test#allowed.test victim.test%2eallowed.test victim.test\\allowed.test
allowed.test%00.victim.test meta.test private.test shared.test inside.test mapped.test
six.test translated.test
"""

for host in HOSTS.split():
    check(
        f"CONNECT {host}",
        ask(f"CONNECT {host}:{VICTIM} HTTP/1.1\r\n\r\n".encode(), hello("victim.test")),
    )
    check(
        f"GET {host}",
        ask(f"GET http://{host}:{VICTIM}/ HTTP/1.1\r\nHost: {host}:{VICTIM}\r\n\r\n".encode()),
    )

for port in (VICTIM, 22, 25, 53, 0, 65536, 99999):
    check(
        f"CONNECT to port {port}",
        ask(f"CONNECT allowed.test:{port} HTTP/1.1\r\n\r\n".encode(), hello("allowed.test")),
    )
check(
    "CONNECT without a port", ask(b"CONNECT allowed.test HTTP/1.1\r\n\r\n", hello("allowed.test"))
)

connect = f"CONNECT allowed.test:{TLS} HTTP/1.1\r\n\r\n".encode()
good = hello("allowed.test")
check("SNI of another host", ask(connect, hello("victim.test")))
check("SNI below the host", ask(connect, hello("x.allowed.test")))
check("SNI missing", ask(connect, hello(None)))
check("SNI hidden by ECH", ask(connect, with_extension(good, 0xFE0D, bytes(40))))
check("a second SNI", ask(connect, with_extension(good, 0, b"\x00\x0e\x00\x00\x0bvictim.test")))
check("plain HTTP in a tunnel", ask(connect, b"GET /echo HTTP/1.1\r\nHost: allowed.test\r\n\r\n"))
check("SSH in a tunnel", ask(connect, b"SSH-2.0-OpenSSH_9\r\n"))
check("SSL 2 in a tunnel", ask(connect, b"\x80\x2e\x01\x00\x02" + bytes(40)))

LENGTH, CODING, END = "Content-Length:", "Transfer-Encoding:", "0\r\n\r\n"
allowed, site = f"allowed.test:{TLS}", "Host: site.door\r\n"
base = f"http://plain.test:{PLAIN}/echo"
host = f"Host: plain.test:{PLAIN}\r\n"
RAW = {
    "Host of another host": f"GET {base} HTTP/1.1\r\nHost: victim.test\r\n\r\n",
    "Host twice": f"GET {base} HTTP/1.1\r\n{host}Host: victim.test\r\n\r\n",
    "a method that is not allowed": f"DELETE {base} HTTP/1.1\r\n{host}\r\n",
    "a method in lower case": f"get {base} HTTP/1.1\r\n{host}\r\n",
    "both lengths": f"POST {base} HTTP/1.1\r\n{host}{LENGTH} 5\r\n{CODING} chunked\r\n\r\n{END}",
    "two lengths": f"POST {base} HTTP/1.1\r\n{host}{LENGTH} 5\r\n{LENGTH} 6\r\n\r\nhello!",
    "a signed length": f"POST {base} HTTP/1.1\r\n{host}{LENGTH} +5\r\n\r\nhello",
    "a list of lengths": f"POST {base} HTTP/1.1\r\n{host}{LENGTH} 5, 5\r\n\r\nhello",
    "an unknown encoding": f"POST {base} HTTP/1.1\r\n{host}{CODING} xchunked\r\n\r\n{END}",
    "two encodings": f"POST {base} HTTP/1.1\r\n{host}{CODING} gzip, chunked\r\n\r\n{END}",
    "a folded line": f"GET {base} HTTP/1.1\r\n{host}X: a\r\n b\r\n\r\n",
    "a space before the colon": f"POST {base} HTTP/1.1\r\n{host}Content-Length : 5\r\n\r\nhello",
    "a bare line feed": f"GET {base} HTTP/1.1\r\n{host}X: a\nY: b\r\n\r\n",
    "a bare carriage return": f"GET {base} HTTP/1.1\r\n{host}X: a\rY: b\r\n\r\n",
    "a zero byte": f"GET {base} HTTP/1.1\r\n{host}X: a\0b\r\n\r\n",
    "another scheme": f"GET ftp://plain.test:{PLAIN}/echo HTTP/1.1\r\n{host}\r\n",
    "https without CONNECT": f"GET https://{allowed}/echo HTTP/1.1\r\nHost: {allowed}\r\n\r\n",
    "a path in place of a URL": f"GET /echo HTTP/1.1\r\n{host}\r\n",
    "another version": f"GET {base} HTTP/2.0\r\n{host}\r\n",
    "the preface of HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "CONNECT with a body": f"CONNECT {allowed} HTTP/1.1\r\n{LENGTH} 5\r\n\r\nhello",
    "CONNECT with another Host": f"CONNECT {allowed} HTTP/1.1\r\nHost: victim.test:{TLS}\r\n\r\n",
    "an unknown upstream": "GET http://other.door/ HTTP/1.1\r\n\r\n",
    "CONNECT to an upstream": "CONNECT site.door:443 HTTP/1.1\r\n\r\n",
    "a path that leads up": f"GET http://site.door/%2e%2e/echo HTTP/1.1\r\n{site}\r\n",
}
for name, text in RAW.items():
    check(name, ask(text.encode("latin-1")))
check(
    "a chunk with an extension",
    ask(
        (
            f"POST {base} HTTP/1.1\r\n{host}{CODING} chunked\r\n\r\n"
            + "5;x=y\r\nhello\r\n0\r\n\r\n"
        ).encode()
    ),
)
check(
    "a chunk with a wrong length",
    ask(
        (
            f"POST {base} HTTP/1.1\r\n{host}{CODING} chunked\r\n\r\n" + "3\r\nhello\r\n0\r\n\r\n"
        ).encode()
    ),
)
check("a head without an end", ask(f"GET {base} HTTP/1.1\r\nX: ".encode() + b"a" * 200_000))

# What follows a request is never taken for another one.
answer = ask(
    (
        f"GET {base} HTTP/1.1\r\n{host}\r\n"
        + f"GET http://victim.test:{VICTIM}/ HTTP/1.1\r\nHost: victim.test:{VICTIM}\r\n\r\n"
    ).encode()
)
outcomes["a second request in the same bytes"] = (
    "refused"
    if answer.count(b"HTTP/1.1") == 1 and b"VICTIM" not in answer
    else f"REACHED {answer[:300]!r}"
)

# A redirect is passed on, and its target is judged like any other.
try:
    body = urllib.request.urlopen(
        f"http://plain.test:{PLAIN}/redirect?to=http://victim.test:{VICTIM}/", timeout=15
    ).read()
    outcomes["a redirect"] = f"REACHED {body!r}"
except urllib.error.HTTPError as error:
    judged += 1
    outcomes["a redirect"] = (
        f"refused {error.code} {error.reason}" if error.code == 403 else f"REACHED {error.code}"
    )


def direct(name, attempt):
    try:
        outcomes[name] = f"REACHED {attempt()!r}"
    except OSError as error:
        outcomes[name] = f"refused {error}"


def connected(family, kind, address, data=b""):
    with socket.socket(family, kind) as peer:
        peer.settimeout(5)
        peer.connect(address)
        if data:
            peer.send(data)
        return peer.recv(100)


direct(
    "TCP to the host", lambda: connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", VICTIM))
)
direct(
    "TCP over IPv6 to the host",
    lambda: connected(socket.AF_INET6, socket.SOCK_STREAM, ("::1", VICTIM)),
)
direct(
    "TCP to the bridge",
    lambda: connected(socket.AF_INET, socket.SOCK_STREAM, ("172.17.0.1", VICTIM)),
)
direct("TCP to the world", lambda: connected(socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 80)))
direct(
    "TCP over IPv6 to the world",
    lambda: connected(socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::1", 80)),
)
direct(
    "UDP to the world",
    lambda: connected(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53), b"x"),
)
direct(
    "UDP to the host", lambda: connected(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 53), b"x")
)
direct("DNS", lambda: socket.getaddrinfo("victim.test", 80))
direct("a raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
direct("a packet socket", lambda: socket.socket(17, socket.SOCK_RAW))
direct(
    "the engine's socket",
    lambda: connected(socket.AF_UNIX, socket.SOCK_STREAM, "/var/run/docker.sock"),
)
direct(
    "an abstract socket of the host",
    lambda: connected(socket.AF_UNIX, socket.SOCK_STREAM, "\0/containerd-shim"),
)

print(json.dumps({"outcomes": outcomes, "judged": judged}))
