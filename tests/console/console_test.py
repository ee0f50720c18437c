"""Opens the console in a browser, at two widths and in two colours, over live servers.

Called by `cargo xtask console` with the program, a folder for databases, and one for screenshots.
"""

import contextlib
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

PROGRAM = sys.argv[1]
FOLDER, SCREENSHOTS = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])

# Longest wait for something to be shown, in milliseconds.
SHOWN_MS_MAX = 60_000

WIDTHS = {"wide": (1280, 900), "narrow": (390, 844)}
COLOURS = ("light", "dark")

HOSTILE = b"<script>alert(1)</script>"


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


class Server:
    """A process that serves two databases, with requests that go on until it is stopped."""

    def __init__(self):
        self.admin = free_port()
        self.ports = [free_port(), free_port()]
        self.process = None

    def start(self):
        config = FOLDER / "tyrant.toml"
        servers = "".join(
            f'[[database]]\nname = "{FOLDER / name}"\nhost = "127.0.0.1"\nport = {port}\n'
            for name, port in zip(("one.tch", "two.tcb"), self.ports)
        )
        config.write_text(
            f'admin = "127.0.0.1:{self.admin}"\nslow-log-threshold = 0.000001\n' + servers
        )
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--config", config],
            stdout=(FOLDER / "log").open("ab"),
            stderr=subprocess.STDOUT,
        )
        wait_until(lambda: self.get("/ready").startswith("HTTP/1.1 200"), "a server")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def get(self, path):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.admin)) as s:
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            return b"".join(iter(lambda: s.recv(65536), b"")).decode()
        return ""


def wait_until(holds, what):
    until = time.monotonic() + 60
    while not holds():
        if time.monotonic() > until:
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.05)


def request(port, line):
    """Sends a request of memcached's protocol, and returns its reply."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(line)
        return connection.recv(65536)


@contextlib.contextmanager
def load(port):
    """Sets and gets records until the block ends."""
    ended = threading.Event()

    def requests():
        while not ended.is_set():
            with contextlib.suppress(OSError):
                request(port, b"set %s 0 0 1\r\n1\r\nget %s\r\nget b\r\n" % (HOSTILE, HOSTILE))
            time.sleep(0.01)

    thread = threading.Thread(target=requests)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def card(page, title):
    return page.locator("section").filter(has=page.get_by_role("heading", name=title, exact=True))


def open_page(browser, server, width, colour):
    """Opens the console. Returns the page and what it has complained about."""
    size = {"width": WIDTHS[width][0], "height": WIDTHS[width][1]}
    page = browser.new_context(viewport=size, color_scheme=colour).new_page()
    complaints, elsewhere = [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
    origin = f"http://127.0.0.1:{server.admin}/"
    page.on(
        "request",
        lambda made: None if made.url.startswith(origin) else elsewhere.append(made.url),
    )
    page.goto(origin + "ui/")
    page.get_by_label("Ask every").select_option("1")
    return page, complaints, elsewhere


def look(browser, server, width, colour):
    page, complaints, elsewhere = open_page(browser, server, width, colour)
    expect(page.locator("#state")).to_have_text("ready", timeout=SHOWN_MS_MAX)
    # Each database has a button; its figures are its own.
    page.get_by_role("button", name="one.tch").click()
    expect(card(page, "Records").locator(".figure")).to_have_text("1 ", timeout=SHOWN_MS_MAX)
    rate = card(page, "Requests").locator("dd").first
    expect(rate).not_to_have_text("0/s", timeout=SHOWN_MS_MAX)
    expect(card(page, "Time of reads").locator("polyline").first).to_be_attached(
        timeout=SHOWN_MS_MAX
    )
    share = card(page, "Reads that found a record").locator(".figure")
    expect(share).to_have_text("50.0% ", timeout=SHOWN_MS_MAX)
    commands = page.locator("#commands")
    expect(commands).to_contain_text("memcached", timeout=SHOWN_MS_MAX)
    # A key is shown as text.
    expect(page.locator("#slow")).to_contain_text(HOSTILE.decode(), timeout=SHOWN_MS_MAX)
    assert page.locator("script").count() == 1, "a script in the page"
    for hidden in ("Replicas", "Master", "Scripts", "Nodes of the cluster"):
        expect(card(page, hidden)).to_be_hidden()
    overflow = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0, f"{width}: the page is {overflow} pixels too wide"
    page.screenshot(path=SCREENSHOTS / f"console-{width}-{colour}.png", full_page=True)
    page.get_by_role("button", name="two.tcb").click()
    expect(card(page, "Records").locator(".figure")).to_have_text("0 ", timeout=SHOWN_MS_MAX)
    expect(commands).to_have_text("No request yet.", timeout=SHOWN_MS_MAX)
    # axe-core is put into the page, which the page's own policy would not allow.
    findings = Axe().run(page).response["violations"]
    serious = [one for one in findings if one["impact"] in ("serious", "critical")]
    assert not serious, [(one["id"], one["nodes"][0]["html"]) for one in serious]
    assert not complaints and not elsewhere, (complaints, elsewhere)
    page.context.close()
    print(f"{width} {colour}: ok")


def lose_and_find(browser, server):
    """A server that ends is said to be gone, and found again by the same page."""
    page, _, _ = open_page(browser, server, "wide", "light")
    expect(page.locator("#state")).to_have_text("ready", timeout=SHOWN_MS_MAX)
    server.stop()
    expect(page.locator("#state")).to_have_text("no reply", timeout=SHOWN_MS_MAX)
    expect(page.locator("#attention")).to_contain_text("does not reply")
    assert "no reply" in page.title()
    server.start()
    expect(page.locator("#state")).to_have_text("ready", timeout=SHOWN_MS_MAX)
    expect(page.locator("#attention")).to_be_hidden()
    page.context.close()
    print("a server that ends and comes back: ok")


def use_keyboard(browser, server):
    page, _, _ = open_page(browser, server, "wide", "light")
    expect(page.get_by_role("button", name="two.tcb")).to_be_visible(timeout=SHOWN_MS_MAX)
    while page.evaluate("document.activeElement.textContent").endswith("two.tcb") is False:
        page.keyboard.press("Tab")
        reached = page.evaluate("document.activeElement.tagName")
        assert reached != "BODY", "the button of a database is not reached by Tab"
    page.keyboard.press("Enter")
    pressed = page.get_by_role("button", name="two.tcb")
    expect(pressed).to_have_attribute("aria-pressed", "true", timeout=SHOWN_MS_MAX)
    page.context.close()
    print("keyboard: ok")


def main():
    server = Server()
    server.start()
    try:
        with sync_playwright() as playwright, load(server.ports[0]):
            browser = playwright.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox"]
            )
            for width in WIDTHS:
                for colour in COLOURS:
                    look(browser, server, width, colour)
            use_keyboard(browser, server)
            lose_and_find(browser, server)
            browser.close()
    finally:
        server.stop()


main()
