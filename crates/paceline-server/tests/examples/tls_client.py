"""Python's ssl against `line_echo`: versions, names, verification.  Arguments: PORT ROOT."""

import socket
import ssl
import sys

PORT, ROOT = int(sys.argv[1]), sys.argv[2]


def context(**settings):
    made = ssl.create_default_context(cafile=ROOT)
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def connect(settings, name):
    plain = socket.create_connection(("127.0.0.1", PORT), timeout=20)
    return settings.wrap_socket(plain, server_hostname=name)


def names(stream):
    return [value for _, value in stream.getpeercert()["subjectAltName"]]


def echo(stream, line):
    stream.sendall(line + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        answer += stream.recv(65536)
    assert answer == line + b"\r\n", answer


for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
    only = context(minimum_version=version, maximum_version=version)
    with connect(only, "localhost") as stream:
        assert stream.version() == version.name.replace("_", "."), stream.version()
        assert "localhost" in names(stream)
        for size in (0, 1, 1000, 8192):
            echo(stream, b"x" * size)

with connect(context(), "other.test") as stream:
    assert names(stream) == ["other.test"]
    echo(stream, b"by its name")

unnamed = context(check_hostname=False)
with connect(unnamed, "unknown.test") as stream:
    assert "localhost" in names(stream)

try:
    connect(context(), "unknown.test")
except ssl.SSLCertVerificationError:
    pass
else:
    raise AssertionError("a certificate for another name was accepted")

try:
    connect(ssl.create_default_context(), "localhost")
except ssl.SSLCertVerificationError:
    pass
else:
    raise AssertionError("an unknown authority was accepted")

old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
try:
    connect(old, "localhost")
except ssl.SSLError:
    pass
else:
    raise AssertionError("an old version was accepted")

print("all passed")
