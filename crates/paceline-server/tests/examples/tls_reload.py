"""Python's ssl against `line_echo`, whose certificates change meanwhile.  Arguments: PORT ROOT.

Prints the number of its certificate; reads a line; connects until it gets another certificate, and prints
that number; reads the end of its input; and says that the first connection goes on."""

import socket
import ssl
import sys
import time

PORT, ROOT = int(sys.argv[1]), sys.argv[2]


def connect():
    plain = socket.create_connection(("127.0.0.1", PORT), timeout=20)
    context = ssl.create_default_context(cafile=ROOT)
    return context.wrap_socket(plain, server_hostname="localhost")


def number(stream):
    return stream.getpeercert()["serialNumber"]


def echo(stream):
    stream.sendall(b"still here\n")
    assert stream.recv(100) == b"still here\r\n"


first = connect()
echo(first)
print(number(first), flush=True)
sys.stdin.readline()

deadline = time.monotonic() + 20
while True:
    with connect() as stream:
        echo(stream)
        if number(stream) != number(first):
            print(number(stream), flush=True)
            break
    assert time.monotonic() < deadline, "the certificate does not change"

assert sys.stdin.read() == ""
with connect() as stream:
    echo(stream)
echo(first)
print("the old connection goes on", flush=True)
