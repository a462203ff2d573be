"""Python's smtplib against `smtp`.  Arguments: PORT ROOT FOLDER.

The server has the user ann with the password secret, takes at most 2 MiB, and files mail in FOLDER."""

import os
import smtplib
import ssl
import sys

PORT, ROOT, FOLDER = int(sys.argv[1]), sys.argv[2], sys.argv[3]
TRUST = ssl.create_default_context(cafile=ROOT)
SENDER, TO = "ann@example.org", ["ben@example.org", "cy@example.net"]


def connect():
    return smtplib.SMTP("localhost", PORT, timeout=20)


def filed():
    """The message that was filed since the last call, without the fields of the server."""
    names = os.listdir(os.path.join(FOLDER, "new"))
    assert len(names) == 1, names
    path = os.path.join(FOLDER, "new", names[0])
    with open(path, "rb") as file:
        content = file.read()
    os.remove(path)
    return_path, received, stamp, rest = content.split(b"\r\n", 3)
    assert return_path == b"Return-Path: <ann@example.org>", return_path
    assert received.startswith(b"Received: from ") and stamp.startswith(b"\tby "), content[:300]
    return stamp, rest


def refused(code, call, *arguments):
    try:
        answer = call(*arguments)
    except smtplib.SMTPResponseException as error:
        answer = (error.smtp_code, error.smtp_error)
    assert answer[0] == code, (code, answer)


# Plain, with every dot that can be doubled, and eight-bit text.
body = b"Subject: dots\r\n\r\n.\r\n..\r\n.x\r\nx.\r\n...\r\n\r\n.\r\ngr\xc3\xbcn\r\n"
with connect() as client:
    assert client.ehlo()[0] == 250
    for extension in ("size", "8bitmime", "pipelining", "starttls"):
        assert client.has_extn(extension), extension
    assert client.esmtp_features["size"] == str(2 << 20)
    assert not client.has_extn("auth"), "AUTH is offered in plain text"
    client.sendmail(SENDER, TO, body, mail_options=["BODY=8BITMIME"])
    stamp, text = filed()
    assert text == body, text
    assert b" with ESMTP;" in stamp, stamp
    # An empty message, and a second one on the same connection.
    client.sendmail(SENDER, TO, b"")
    assert filed()[1] in (b"", b"\r\n")
    client.sendmail(SENDER, TO, b".\r\n")
    assert filed()[1] == b".\r\n"

# HELO alone.
with connect() as client:
    client.helo("old.example.org")
    client.sendmail(SENDER, TO, b"Subject: old\r\n\r\n")
    assert b" with SMTP;" in filed()[0]

# TLS, verified, and each way to log in.
for mechanism in ("auth_plain", "auth_login"):
    with connect() as client:
        client.ehlo()
        refused(538, client.docmd, "AUTH", "PLAIN")
        assert client.starttls(context=TRUST)[0] == 220
        refused(503, client.docmd, "MAIL", "FROM:<ann@example.org>")
        client.ehlo()
        assert not client.has_extn("starttls")
        assert client.esmtp_features["auth"].split() == ["PLAIN", "LOGIN"]
        refused(503, client.docmd, "STARTTLS")
        client.user, client.password = "ann", "wrong"
        refused(535, client.auth, mechanism[5:], getattr(client, mechanism))
        client.user, client.password = "ann", "secret"
        client.auth(mechanism[5:], getattr(client, mechanism))
        refused(503, client.docmd, "AUTH", "PLAIN")
        client.sendmail(SENDER, TO, body)
        stamp, text = filed()
        assert text == body
        assert b" with ESMTPSA;" in stamp, stamp

# A challenge for a response that did not come along.
with connect() as client:
    client.starttls(context=TRUST)
    client.ehlo()
    client.user, client.password = "ann", "secret"
    client.auth("login", client.auth_login, initial_response_ok=False)

# A large message, byte for byte, in plain text and under TLS.
lines = b"".join(b".%05d %s\r\n" % (number, b"x" * 70) for number in range((1 << 20) // 79))
large = b"Subject: large\r\n\r\n" + lines
for secure in (False, True):
    with connect() as client:
        if secure:
            client.starttls(context=TRUST)
        client.sendmail(SENDER, TO, large)
        assert filed()[1] == large

# One that is too long: refused by its size, or after its end; the connection goes on.
with connect() as client:
    client.ehlo()
    refused(552, client.mail, SENDER, ["SIZE=%d" % (3 << 20)])
    assert client.mail(SENDER)[0] == 250
    assert client.rcpt(TO[0])[0] == 250
    refused(552, client.data, large * 3)
    assert client.mail(SENDER)[0] == 250
    assert client.rcpt(TO[0])[0] == 250
    assert client.data(b"Subject: short\r\n\r\n")[0] == 250
    filed()

# Several commands at once, and a message behind them.
with connect() as client:
    client.ehlo()
    client.send(
        b"MAIL FROM:<ann@example.org>\r\nRCPT TO:<ben@example.org>\r\nRCPT TO:<bad>\r\nDATA\r\n"
    )
    assert [client.getreply()[0] for _ in range(4)] == [250, 250, 553, 354]
    client.send(b"Subject: pipelined\r\n\r\nx\r\n.\r\nNOOP\r\nQUIT\r\n")
    assert [client.getreply()[0] for _ in range(3)] == [250, 250, 221]
assert filed()[1] == b"Subject: pipelined\r\n\r\nx\r\n"
assert os.listdir(os.path.join(FOLDER, "tmp")) == []
print("all passed")
