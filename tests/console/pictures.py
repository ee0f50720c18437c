"""Takes the pictures of the documentation, of a server with fixed records under a fixed load.

Called by `cargo xtask console --pictures` with the program, a folder for databases, and one for
the pictures.
"""

import io
import json
import math
import random
import socket
import threading
import time

from PIL import Image
from playwright.sync_api import expect, sync_playwright

import terminal
from console_test import (
    DRAWN, PROGRAM, SCREENSHOTS, SHOWN_MS_MAX, Server, card, http, launch, open_page,
)

# Largest picture, in bytes, and its colours.
BYTES_MAX = 100_000
COLOURS = 128

# Time for which the load has gone on when the dashboard is taken, in seconds.
LOAD_SECONDS = 90

KEYS = 20_000
NAMES = ("Ann", "Bea", "Carl", "Dora", "Emil", "Fay", "Gus", "Hanna", "Ivo", "Jan")


def session(number):
    name = NAMES[number % len(NAMES)]
    return {
        "user": name,
        "mail": f"{name.lower()}{number}@example.org",
        "cart": [{"article": number * 7 % 1000, "pieces": number % 3 + 1}],
        "visits": number % 40,
    }


def stored(number):
    """Returns the request that stores a session for an hour."""
    value = json.dumps(session(number)).encode()
    return b"set session:%05d 0 3600 %d\r\n%s\r\n" % (number, len(value), value)


def store(port):
    """Stores sessions and pages."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        replies = connection.makefile("rb")
        for start in range(0, KEYS, 1000):
            lines = [stored(number) for number in range(start, start + 1000)]
            connection.sendall(b"".join(lines))
            for _ in lines:
                assert replies.readline() == b"STORED\r\n"
    for key, kind, value in [
        ("page:start", "text/html", b"<h1>Welcome</h1>"),
        ("page:terms", "text/html", b"<h1>Terms</h1>"),
    ]:
        http(port, "PUT", key, value, [("Content-Type", kind)])


def load(port, seed, ended):
    """Reads nine times as often as it writes, more and less often in waves, until the end."""
    chance, begun = random.Random(seed), time.monotonic()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        replies = connection.makefile("rb")
        while not ended.is_set():
            lines, ends = [], 0
            for _ in range(20):
                number = int(chance.random() ** 2 * KEYS * 1.04)
                if chance.random() < 0.1:
                    lines.append(stored(number))
                else:
                    lines.append(b"get session:%05d\r\n" % number)
                ends += 1
            connection.sendall(b"".join(lines))
            while ends > 0:
                ends -= replies.readline() in (b"END\r\n", b"STORED\r\n")
            wave = 1 + 0.6 * math.sin((time.monotonic() - begun) / 9 + seed)
            time.sleep(0.012 / wave)


def save(page, name):
    """Saves a picture with few colours."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture = picture.quantize(COLOURS, dither=Image.Dither.NONE)
    path = SCREENSHOTS / f"{name}.png"
    picture.save(path, optimize=True)
    assert path.stat().st_size <= BYTES_MAX, f"{path} has {path.stat().st_size} bytes"


def take(browser, server):
    page, _, _ = open_page(browser, server, "wide", "light", "#records")
    page.get_by_role("button", name="sessions.tcb").click()
    page.get_by_label("that begin with").fill("session:0")
    page.get_by_role("button", name="Show", exact=True).click()
    page.locator("#keys").get_by_role("link", name="session:00007", exact=True).click()
    expect(page.locator("#record pre")).to_contain_text("Hanna")
    save(page, "console-records")
    page.context.close()
    page, _, _ = open_page(browser, server, "wide", "light")
    small, _, _ = open_page(browser, server, "narrow", "dark")
    for one in (page, small):
        one.get_by_role("button", name="sessions.tcb").click()
        expect(card(one, "Requests").locator(DRAWN).first).to_be_attached(timeout=SHOWN_MS_MAX)
    time.sleep(LOAD_SECONDS)
    save(page, "console-dashboard")
    save(small, "console-dark")
    page.context.close()
    small.context.close()


def main():
    server = Server(("sessions.tcb", "pages.tch"), slow_seconds=0.003)
    server.start()
    ended = threading.Event()
    try:
        store(server.ports[0])
        loads = [threading.Thread(target=load, args=(server.ports[0], n, ended)) for n in range(4)]
        for one in loads:
            one.start()
        with sync_playwright() as playwright:
            browser = launch(playwright)
            take(browser, server)
            browser.close()
        address = f"127.0.0.1:{server.ports[0]}"
        rows = terminal.capture([PROGRAM, "top", "--server", address, "--interval", "1"], 25)
        (SCREENSHOTS / "top.svg").write_text(terminal.draw(rows))
    finally:
        ended.set()
        server.stop()


main()
