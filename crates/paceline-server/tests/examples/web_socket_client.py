"""A browser's part in `web_chat`, by the library `websockets`. Ends with 77 if it is not installed."""
import asyncio
import sys

try:
    import websockets
except ImportError:
    sys.exit(77)

PORT, LINES = sys.argv[1:3]


async def expect(socket, wanted):
    got = await asyncio.wait_for(socket.recv(), 20)
    assert got == wanted, (got, wanted)


async def main():
    address = f"ws://127.0.0.1:{PORT}/ws"
    async with websockets.connect(address, origin=f"http://127.0.0.1:{PORT}") as first:
        await expect(first, "* welcome, guest-1: /name NAME gives you a name")
        await expect(first, "* guest-1 has joined")
        async with websockets.connect(address) as second:
            await expect(first, "* guest-2 has joined")
            await expect(second, "* welcome, guest-2: /name NAME gives you a name")
            await expect(second, "* guest-2 has joined")
            await second.send("/name ann")
            await expect(first, "* guest-2 is now ann")
            await second.send(["hello ", "in ", "pieces"])
            await expect(first, "ann: hello in pieces")
            await (await second.ping())
            reader, writer = await asyncio.open_connection("127.0.0.1", LINES)
            writer.write(b"from a terminal\r\n")
            await expect(first, "* guest-3 has joined")
            await expect(first, "guest-3: from a terminal")
            writer.close()
            await expect(first, "* guest-3 has left")
        await expect(first, "* ann has left")
        await first.send("x" * 1001)
        try:
            await first.recv()
            raise AssertionError("a message beyond the limit was taken")
        except websockets.exceptions.ConnectionClosed as closed:
            assert closed.rcvd.code == 1009, closed
    try:
        await websockets.connect(address, origin="http://bad.example")
        raise AssertionError("a foreign origin was let in")
    except Exception as refused:
        assert "403" in str(refused), refused


asyncio.run(main())
