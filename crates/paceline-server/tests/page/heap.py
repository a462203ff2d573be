"""The heap of the live page over time.  Arguments: URL CHROMIUM FOLDER SECONDS.

Chromium shows the page, and its DevTools port is asked for the size of the heap behind a collection of garbage. Prints
`NODES SIZE SIZE ..`: the nodes of its document, and the sizes in bytes. Status 77: a module is missing."""

import asyncio
import json
import subprocess
import sys
import urllib.request

try:
    import websockets
except ImportError:
    sys.exit(77)

URL, CHROMIUM, FOLDER, SECONDS = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
SAMPLES = 12


def start():
    browser = subprocess.Popen(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
         "--js-flags=--expose-gc", f"--user-data-dir={FOLDER}", "about:blank"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in browser.stderr:
        if "DevTools listening on ws://" in line:
            port = line.split("ws://")[1].split("/")[0].split(":")[1]
            return browser, int(port)
    raise SystemExit("the browser has no DevTools port")


class Page:
    """A page over the DevTools protocol."""

    def __init__(self, socket):
        self.socket, self.last, self.console = socket, 0, []

    async def ask(self, method, **params):
        self.last += 1
        await self.socket.send(json.dumps({"id": self.last, "method": method, "params": params}))
        while True:
            answer = json.loads(await self.socket.recv())
            if answer.get("id") == self.last:
                assert "error" not in answer, answer
                return answer["result"]
            if answer.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                self.console.append(answer)

    async def value(self, expression):
        result = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return result["result"].get("value")

    async def heap(self):
        await self.ask("HeapProfiler.collectGarbage")
        usage = await self.ask("Runtime.getHeapUsage")
        return int(usage["usedSize"])


async def watch(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
        target = next(page for page in json.load(answer) if page["type"] == "page")
    async with websockets.connect(target["webSocketDebuggerUrl"], max_size=None, ping_interval=None) as socket:
        page = Page(socket)
        for domain in ("Runtime", "Log", "Page", "HeapProfiler"):
            await page.ask(f"{domain}.enable")
        await page.ask("Page.navigate", url=URL)
        sizes = []
        # The first fifth of the time is for what the page sets up, such as its history of the lanes.
        await asyncio.sleep(SECONDS / 5)
        for _ in range(SAMPLES):
            await asyncio.sleep(SECONDS * 4 / 5 / SAMPLES)
            sizes.append(await page.heap())
        text = await page.value("document.querySelector('[role=status]').textContent")
        assert text == "serving", text
        nodes = await page.value("document.getElementsByTagName('*').length")
        assert not page.console, page.console
        print(nodes, *sizes)


def main():
    browser, port = start()
    try:
        asyncio.run(watch(port))
    finally:
        browser.kill()
        browser.wait()


main()
