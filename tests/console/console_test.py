"""Opens the console in a browser, at two widths and in two colours, over live servers.

Called by `cargo xtask console` with the program, a folder for databases, and one for screenshots.
"""

import base64
import contextlib
import functools
import gzip
import http.client as http_client
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import HTTPServer, SimpleHTTPRequestHandler

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

PROGRAM = sys.argv[1]
FOLDER, SCREENSHOTS = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])

# Longest wait for something to be shown, in milliseconds.
SHOWN_MS_MAX = 60_000

WIDTHS = {"wide": (1280, 900), "narrow": (390, 844)}
COLOURS = ("light", "dark")

# A line of a chart that has a value.
DRAWN = "path[class^=k][d^=M]"

HOSTILE = b"<script>alert(1)</script>"


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


class Server:
    """A process that serves databases, with requests that go on until it is stopped."""

    def __init__(self, names=("one.tch", "two.tcb"), settings="", slow_seconds=0.000001):
        self.admin = free_port()
        self.names, self.settings, self.slow_seconds = names, settings, slow_seconds
        self.ports = [free_port() for _ in names]
        self.process = None

    def start(self):
        config = FOLDER / f"{self.admin}.toml"
        servers = "".join(
            f'[[database]]\nname = "{FOLDER / name}"\nhost = "127.0.0.1"\nport = {port}\n'
            + self.settings
            for name, port in zip(self.names, self.ports)
        )
        config.write_text(
            f'admin = "127.0.0.1:{self.admin}"\nslow-log-threshold = {self.slow_seconds:f}\n'
            + servers
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


def launch(playwright):
    arguments = ["--no-sandbox"]
    return playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)


def card(page, title):
    return page.locator("section").filter(has=page.get_by_role("heading", name=title, exact=True))


def open_page(browser, server, width, colour, view="", **options):
    """Opens the console. Returns the page and what it has complained about."""
    size = {"width": WIDTHS[width][0], "height": WIDTHS[width][1]}
    page = browser.new_context(viewport=size, color_scheme=colour, **options).new_page()
    complaints, elsewhere = [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
    origin = f"http://127.0.0.1:{server.admin}/"
    page.on(
        "request",
        lambda made: None if made.url.startswith(origin) else elsewhere.append(made.url),
    )
    page.goto(origin + "ui/" + view)
    return page, complaints, elsewhere


def picture(page, name, width, colour):
    """Takes a screenshot of a page, which must not be too wide."""
    overflow = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0, f"{name} {width}: the page is {overflow} pixels too wide"
    page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{colour}.png", full_page=True)


def find_barriers(page):
    # axe-core is put into the page, which the page's own policy would not allow.
    findings = Axe().run(page).response["violations"]
    serious = [one for one in findings if one["impact"] in ("serious", "critical")]
    assert not serious, [(one["id"], one["nodes"][0]["html"]) for one in serious]


def look(browser, server, width, colour):
    page, complaints, elsewhere = open_page(browser, server, width, colour)
    expect(page.locator("#state")).to_have_text("ready", timeout=SHOWN_MS_MAX)
    # Each database has a button; its figures are its own.
    page.get_by_role("button", name="one.tch").click()
    expect(card(page, "Records").locator(".figure")).to_have_text("1 ", timeout=SHOWN_MS_MAX)
    rate = card(page, "Requests").locator("dd").first
    expect(rate).not_to_have_text("0/s", timeout=SHOWN_MS_MAX)
    expect(card(page, "Time of reads").locator(DRAWN).first).to_be_attached(timeout=SHOWN_MS_MAX)
    share = card(page, "Reads that found a record").locator(".figure")
    expect(share).to_have_text("50.0% ", timeout=SHOWN_MS_MAX)
    commands = page.locator("#commands")
    expect(commands).to_contain_text("memcached", timeout=SHOWN_MS_MAX)
    # A key is shown as text.
    expect(page.locator("#slow")).to_contain_text(HOSTILE.decode(), timeout=SHOWN_MS_MAX)
    assert page.locator("script").count() == 1, "a script in the page"
    for hidden in ("Replicas", "Master", "Scripts", "Nodes of the cluster"):
        expect(card(page, hidden)).to_be_hidden()
    picture(page, "console", width, colour)
    page.get_by_role("button", name="two.tcb").click()
    expect(card(page, "Records").locator(".figure")).to_have_text("0 ", timeout=SHOWN_MS_MAX)
    expect(commands).to_have_text("No request yet.", timeout=SHOWN_MS_MAX)
    find_barriers(page)
    assert not complaints and not elsewhere, (complaints, elsewhere)
    page.context.close()
    print(f"{width} {colour}: ok")


# A picture of one pixel, and a part of it.
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
JSON = b'{"name":"Ann","number":12345678901234567890,"tags":["a","b"],"none":[]}'
LONG_BYTES = 3_000_000


def http(port, method, key, value=b"", headers=()):
    """Sends a request to a database, and returns the status and the reply."""
    connection = http_client.HTTPConnection("127.0.0.1", port)
    connection.request(method, "/" + key, value, dict(headers))
    reply = connection.getresponse()
    return reply.status, reply.read()


def fill(port):
    """Stores records of all kinds in a tree."""
    for number in range(250):
        http(port, "PUT", f"page:{number:03}", b"%d" % number)
    for key, media_type, value in [
        ("doc:json", "application/json", JSON),
        ("doc:html", "text/html", HOSTILE),
        ("doc:text", "text/plain; charset=utf-8", "Grüße".encode()),
        ("doc:picture", "image/png", PICTURE),
        ("doc:no-picture", "image/png", PICTURE[:20]),
        ("doc:svg", "image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'>%s</svg>" % HOSTILE),
        ("doc:empty", "text/plain", b""),
        ("doc:long", "application/octet-stream", bytes(range(256)) * (LONG_BYTES // 256)),
        ("bin:%00%FF%2e%2e%2F", "application/octet-stream", bytes(range(256))),
        ("bin:%3Cscript%3Ealert(1)%3C%2Fscript%3E", "text/plain", b"a key"),
    ]:
        assert http(port, "PUT", key, value, [("Content-Type", media_type)])[0] == 201, key


def choose(page, prefix, key):
    """Lists the keys with a prefix, and opens one of them."""
    page.get_by_label("that begin with").fill(prefix)
    page.get_by_role("button", name="Show", exact=True).click()
    page.locator("#keys").get_by_role("link", name=key, exact=True).click()
    expect(page.locator("#record .name")).to_have_text(key)


def look_at_records(browser, server, width, colour):
    page, complaints, elsewhere = open_page(browser, server, width, colour, "#records")
    panel, keys = page.locator("#record"), page.locator("#keys li")
    page.get_by_role("button", name="two.tcb").click()
    # Pages of 100 keys, made by the server.
    page.get_by_label("that begin with").fill("page:")
    page.get_by_role("button", name="Show", exact=True).click()
    for first, last, many in [("000", "099", 100), ("100", "199", 100), ("200", "249", 50)]:
        expect(keys.first).to_have_text(f"page:{first}", timeout=SHOWN_MS_MAX)
        expect(keys).to_have_count(many)
        expect(keys.last).to_have_text(f"page:{last}")
        if many == 100:
            page.get_by_role("button", name="Next page").click()
    expect(page.get_by_role("button", name="Next page")).to_be_disabled()
    page.go_back()
    expect(keys.first).to_have_text("page:100")
    page.get_by_role("button", name="First page").click()
    expect(keys.first).to_have_text("page:000")
    assert page.locator("tr, li").count() <= 500, "too many rows"
    # Values in each form.
    for key, view, text in [
        ("doc:html", "Text", HOSTILE.decode()),
        ("doc:text", "Text", "Grüße"),
        ("doc:empty", "Text", ""),
        ("doc:svg", "Text", "<svg"),
        ("doc:no-picture", "Image", "not a whole image"),
        ("bin:%00%FF../", "Hex", "0000f0  f0 f1"),
        ("bin:<script>alert(1)</script>", "Text", "a key"),
        ("doc:long", "Hex", "00fff0"),
        ("doc:picture", "Hex", "89 50 4e 47"),
        ("doc:json", "JSON", '  "number": 12345678901234567890,\n  "tags": [\n    "a",\n'),
    ]:
        choose(page, key[:4], key)
        panel.get_by_role("button", name=view, exact=True).click()
        expect(panel).to_contain_text(text)
        if key == "doc:picture":
            panel.get_by_role("button", name="Image", exact=True).click()
            page.wait_for_function("document.querySelector('img.value').naturalWidth === 1")
    picture(page, "records", width, colour)
    find_barriers(page)
    panel.get_by_role("button", name="Change", exact=True).click()
    find_barriers(page)
    page.screenshot(path=SCREENSHOTS / f"dialog-{width}-{colour}.png")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.locator("script").count() == 1, "a script in the page"
    # An empty value has no first part, which the browser logs.
    complaints = [one for one in complaints if "416 (Range Not Satisfiable)" not in one]
    assert not complaints and not elsewhere, (complaints, elsewhere)
    page.context.close()
    print(f"records {width} {colour}: ok")


def save(page, label):
    """Sends the form of the dialog, which then ends."""
    page.get_by_role("dialog").get_by_role("button", name=label, exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def change_records(browser, server):
    page, complaints, _ = open_page(browser, server, "wide", "light", "#records")
    port, panel = server.ports[1], page.locator("#record")
    page.get_by_role("button", name="two.tcb").click()
    # A new record, of which there is one already the second time.
    for is_second in (False, True):
        page.get_by_role("button", name="New record").click()
        form = page.get_by_role("dialog")
        form.get_by_label("Key, in which").fill("new:%00%20key")
        form.get_by_label("Value", exact=True).fill("first")
        if is_second:
            form.get_by_role("button", name="Store").click()
            expect(form).to_contain_text("a record with this key already")
            page.keyboard.press("Escape")
        else:
            save(page, "Store")
    expect(panel.locator(".name")).to_have_text("new:%00 key")
    expect(panel).to_contain_text("text/plain; charset=utf-8")
    assert http(port, "GET", "new:%00%20key") == (200, b"first")
    # An edit keeps type and expiry.
    panel.get_by_role("button", name="Expiry").click()
    page.get_by_role("dialog").get_by_label("Expires after").fill("1000")
    save(page, "Change")
    expect(panel.locator("dt", has_text="expires")).to_have_count(1)
    panel.get_by_role("button", name="Change", exact=True).click()
    page.get_by_role("dialog").get_by_label("Value", exact=True).fill("second\nline")
    save(page, "Store")
    expect(panel.locator("pre")).to_have_text("second\nline")
    expect(panel.locator("dt", has_text="expires")).to_have_count(1)
    expect(panel).to_contain_text("text/plain; charset=utf-8")
    # Of two changes of one version the later one fails.
    panel.get_by_role("button", name="Change", exact=True).click()
    http(port, "PUT", "new:%00%20key", b"of another client")
    form = page.get_by_role("dialog")
    form.get_by_label("Value", exact=True).fill("mine")
    form.get_by_role("button", name="Store").click()
    expect(form).to_contain_text("changed by another client")
    page.keyboard.press("Escape")
    assert http(port, "GET", "new:%00%20key") == (200, b"of another client")
    page.reload()
    expect(panel).to_contain_text("of another client", timeout=SHOWN_MS_MAX)
    # A file of over 1 MiB is refused: no change of another client could be noticed.
    file = FOLDER / "long-file"
    file.write_bytes(bytes(range(256)) * 20_000)
    panel.get_by_role("button", name="Change", exact=True).click()
    form = page.get_by_role("dialog")
    form.get_by_label("Value from a file").set_input_files(file)
    form.get_by_role("button", name="Store").click()
    expect(form).to_contain_text("over 1 MiB")
    page.keyboard.press("Escape")
    assert http(port, "GET", "new:%00%20key") == (200, b"of another client")
    # One up to that goes to the server, and comes back by the link.
    file.write_bytes(bytes(range(256)) * 4_000)
    panel.get_by_role("button", name="Change", exact=True).click()
    page.get_by_role("dialog").get_by_label("Value from a file").set_input_files(file)
    save(page, "Store")
    expect(panel).to_contain_text("The first 64.0 KiB")
    with page.expect_download() as download:
        panel.get_by_role("link", name="Download").click()
    assert download.value.path().read_bytes() == file.read_bytes()
    # A deletion is asked about first.
    panel.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert http(port, "HEAD", "new:%00%20key")[0] == 200
    panel.get_by_role("button", name="Delete").click()
    save(page, "Delete")
    expect(panel).to_contain_text("no such record")
    assert http(port, "HEAD", "new:%00%20key")[0] == 404
    # Flags of a memcached client stay.
    request(port, b"set flagged 7 0 1\r\na\r\n")
    choose(page, "flag", "flagged")
    panel.get_by_role("button", name="Change", exact=True).click()
    page.get_by_role("dialog").get_by_label("Value", exact=True).fill("b")
    save(page, "Store")
    expect(panel.locator("pre")).to_have_text("b")
    assert request(port, b"get flagged\r\n") == b"VALUE flagged 7 1\r\nb\r\nEND\r\n"
    page.context.close()
    # The browser logs each refusal; there is nothing else.
    refusals = [one for one in complaints if "the server responded with a status of" not in one]
    assert not refusals, refusals
    print("changes of records: ok")


def show_stored_pages(browser, server):
    """A stored page does not run, at whatever address of the console."""
    page, _, _ = open_page(browser, server, "wide", "light", "#records")
    page.get_by_role("button", name="two.tcb").click()
    choose(page, "doc:", "doc:html")
    address = page.locator("#record").get_by_role("link", name="Download").get_attribute("href")
    for suffix in ("", "&as=image/png"):
        with page.expect_download() as download:
            page.evaluate(
                "(address) => { document.body.append(Object.assign(document.createElement('a'),"
                " { href: address, id: 'stored', textContent: 'stored' })); }",
                address + suffix,
            )
            page.locator("#stored").click()
        assert download.value.path().read_bytes() == HOSTILE
        page.evaluate("document.getElementById('stored').remove()")
    page.context.close()
    print("stored pages are not shown: ok")


def leave_before_the_keys(browser, server):
    """A late reply with keys changes nothing in the view that is shown by then."""
    page, _, _ = open_page(browser, server, "wide", "light")
    expect(page.locator("#state")).to_have_text("ready", timeout=SHOWN_MS_MAX)
    held = []
    page.route("**/ui/keys?*", lambda route: held.append(route))
    with page.expect_request("**/ui/keys?*"):
        page.get_by_role("link", name="Records").click()
    failure = page.locator("#failure")
    page.get_by_role("link", name="Changes").click()
    expect(failure).to_contain_text("has no update log", timeout=SHOWN_MS_MAX)
    with page.expect_response("**/ui/keys?*"):
        held[0].continue_()
    # The page has taken the reply by then.
    page.wait_for_timeout(500)
    expect(failure).to_contain_text("has no update log")
    page.unroute("**/ui/keys?*")
    page.get_by_role("link", name="Records").click()
    expect(page.locator("#keys li a").first).to_be_visible(timeout=SHOWN_MS_MAX)
    expect(failure).to_be_hidden()
    page.context.close()
    print("late keys: ok")


def frame_and_post(browser, server):
    """A page of another site neither shows the console in a frame nor changes a record."""
    folder = FOLDER / "site"
    folder.mkdir(exist_ok=True)
    site = HTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(folder)))
    threading.Thread(target=site.serve_forever, daemon=True).start()
    console = f"http://127.0.0.1:{server.admin}/ui/"
    (folder / "index.html").write_text(
        f'<iframe src="{console}"></iframe>'
        f'<form method="post" action="{console}call?db=0&name=vanish"><button>post</button></form>'
    )
    page = browser.new_context().new_page()
    # The name differs from that of the console, so the site does.
    page.goto(f"http://localhost:{site.server_port}/")
    expect(page.frame_locator("iframe").locator("#cards")).to_have_count(0)
    reached = page.evaluate(
        """async (console) => {
          const tries = [["record?db=0&key=k", {}], ["call?db=0&name=vanish", { method: "POST" }],
            ["record?db=0&key=k", { method: "DELETE", headers: { "X-Tyrant-Console": "1" } }]];
          const read = tries.map(([path, options]) => fetch(console + path, options).then(() => 1, () => 0));
          return (await Promise.all(read)).reduce((sum, one) => sum + one, 0);
        }""",
        console,
    )
    assert reached == 0, reached
    with page.expect_response(lambda reply: "call?" in reply.url) as reply:
        page.get_by_role("button", name="post").click()
    assert reply.value.status == 403, reply.value.status
    page.context.close()
    site.shutdown()
    print("pages of other sites: ok")


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def act(browser, server, width, colour):
    page, complaints, _ = open_page(browser, server, width, colour, "#actions")
    page.get_by_role("button", name="two.tcb").click()
    page.get_by_role("button", name="Sync").click()
    expect(card(page, "Sync")).to_contain_text("Done in")
    page.get_by_role("button", name="Start").click()
    expect(card(page, "Check")).to_contain_text("finished", timeout=SHOWN_MS_MAX)
    expect(card(page, "Check")).to_contain_text("0 damaged places")
    page.get_by_role("button", name="Optimize").click()
    save(page, "Optimize")
    expect(card(page, "Optimize")).to_contain_text("Done in", timeout=SHOWN_MS_MAX)
    page.get_by_role("button", name="Back up").click()
    expect(card(page, "Back up")).to_contain_text("set copy-dir")
    # To remove all records is asked about.
    page.get_by_label("Function, such as").fill("vanish")
    page.get_by_role("button", name="Call").click()
    expect(page.get_by_role("dialog")).to_contain_text("every record of")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert http(server.ports[1], "HEAD", "doc:html")[0] == 200
    page.get_by_label("Function, such as").fill("getlist")
    page.get_by_label("Arguments").fill("doc:html\ndoc:%74ext")
    page.get_by_role("button", name="Call").click()
    expect(page.locator("#result")).to_contain_text(f"2  {HOSTILE.decode()}\n3  doc:text\n4  Grüße")
    picture(page, "actions", width, colour)
    find_barriers(page)
    # The browser logs the refusal of the copy.
    complaints = [one for one in complaints if "501 (Not Implemented)" not in one]
    assert not complaints, complaints
    page.context.close()
    print(f"actions {width} {colour}: ok")


def log_in(browser):
    """Each user sees and changes what the rights allow; the password is in no storage."""
    users = FOLDER / "users"
    for name, rights in [("ann", "read:page:,write:page:1"), ("bob", "read,write,admin")]:
        add = [PROGRAM, "user", "add", name, "--rights", rights, "--users", users, "--quiet"]
        subprocess.run(add, input=b"secret\n", check=True)
    copies = FOLDER / "copies"
    copies.mkdir()
    settings = f'users = "{users}"\ncopy-dir = "{copies}"\n'
    settings += f'update-log = "{FOLDER / "ulog"}"\nserver-id = 1\n'
    server = Server(("users.tcb",), settings)
    server.start()
    try:
        header = "Basic " + base64.b64encode(b"bob:secret").decode()
        for key in ("page:1", "page:2", "other"):
            http(server.ports[0], "PUT", key, b"value", [("Authorization", header)])
        wrong = {"username": "ann", "password": "wrong"}
        page, _, _ = open_page(
            browser, server, "wide", "light", "#records", http_credentials=wrong
        )
        failure = page.locator("#failure")
        expect(failure).to_contain_text("Log in to see the records", timeout=SHOWN_MS_MAX)
        expect(page.locator("#state")).to_have_text("ready", timeout=SHOWN_MS_MAX)
        page.context.close()
        credentials = {"username": "ann", "password": "secret"}
        page, _, _ = open_page(
            browser, server, "wide", "light", "#records", http_credentials=credentials
        )
        failure = page.locator("#failure")
        expect(failure).to_contain_text("lacks the right", timeout=SHOWN_MS_MAX)
        choose(page, "page:", "page:2")
        expect(failure).to_be_hidden()
        expect(page.locator("#record pre")).to_have_text("value")
        page.locator("#record").get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_role("dialog")).to_contain_text("lacks the right")
        page.keyboard.press("Escape")
        choose(page, "page:", "page:1")
        page.locator("#record").get_by_role("button", name="Delete").click()
        save(page, "Delete")
        expect(page.locator("#keys li")).to_have_count(1)
        page.get_by_role("link", name="Actions").click()
        page.get_by_role("button", name="Start").click()
        expect(card(page, "Check")).to_contain_text("lacks the right")
        stored = "[localStorage.length, sessionStorage.length, document.cookie.length]"
        assert page.evaluate(stored) == [0, 0, 0]
        page.get_by_role("button", name="Back up").click()
        expect(card(page, "Back up")).to_contain_text("right")
        assert not list(copies.iterdir())
        page.get_by_role("link", name="Changes").click()
        expect(page.locator("#failure")).to_contain_text("the user lacks the right read")
        expect(page.get_by_role("button", name="Go on")).to_be_visible()
        page.context.close()
        follow_changes(browser, server, header)
        copy(browser, server, copies)
        log_out(browser, server)
    finally:
        server.stop()
    print("users: ok")


def follow_changes(browser, server, header):
    """The changes of others are shown, unless there is a pause."""
    credentials = {"username": "bob", "password": "secret"}
    page, complaints, _ = open_page(
        browser, server, "narrow", "dark", "#changes", http_credentials=credentials
    )
    headers = [("Authorization", header)]
    rows = page.locator("#changes tr")
    expect(rows).to_have_text("No change yet.", timeout=SHOWN_MS_MAX)

    def put(key):
        assert http(server.ports[0], "PUT", key, b"value", headers)[0] == 201

    # The stream has begun once the first change is shown.
    for number in range(1000):
        put(f"first:{number}")
        with contextlib.suppress(AssertionError):
            expect(rows.first).to_contain_text("first:", timeout=200)
            break
    put("%3Cscript%3E")
    expect(rows.first).to_contain_text("<script>")
    expect(rows.first).to_contain_text("put")
    picture(page, "changes", "narrow", "dark")
    find_barriers(page)
    page.get_by_role("button", name="Pause").click()
    put("unseen")
    page.get_by_role("button", name="Go on").click()
    for number in range(1000):
        put(f"second:{number}")
        with contextlib.suppress(AssertionError):
            expect(rows.first).to_contain_text("second:", timeout=200)
            break
    expect(page.locator("#changes")).not_to_contain_text("unseen")
    for number in range(300):
        put(f"third:{number}")
    expect(rows.first).to_contain_text("third:299")
    expect(rows).to_have_count(200)
    assert not complaints, complaints
    page.context.close()
    print("changes: ok")


def copy(browser, server, copies):
    credentials = {"username": "bob", "password": "secret"}
    page, _, _ = open_page(
        browser, server, "wide", "light", "#actions", http_credentials=credentials
    )
    page.get_by_role("button", name="Back up").click()
    expect(card(page, "Back up")).to_contain_text("are in", timeout=SHOWN_MS_MAX)
    (made,) = copies.iterdir()
    expect(card(page, "Back up")).to_contain_text(made.name)
    page.context.close()
    print("backup: ok")


def leave_logins(page):
    """Has the browser leave each dialog for a name and a password, as a user by Cancel."""
    session = page.context.new_cdp_session(page)

    def cancel(event):
        answer = {
            "requestId": event["requestId"],
            "authChallengeResponse": {"response": "CancelAuth"},
        }
        session.send("Fetch.continueWithAuth", answer)

    def go_on(event):
        session.send("Fetch.continueRequest", {"requestId": event["requestId"]})

    session.on("Fetch.authRequired", cancel)
    session.on("Fetch.requestPaused", go_on)
    session.send("Fetch.enable", {"handleAuthRequests": True})


def log_out(browser, server):
    """The browser forgets name and password, which it has kept."""
    page = browser.new_context().new_page()
    leave_logins(page)
    origin = f"127.0.0.1:{server.admin}/ui/"
    page.goto(f"http://{origin}#records")
    expect(page.locator("#failure")).to_contain_text("Log in", timeout=SHOWN_MS_MAX)
    (db,) = page.evaluate("fetch('databases').then((reply) => reply.json())")
    page.goto(f"http://bob:secret@{origin}keys?db={db['id']}")
    expect(page.locator("body")).to_contain_text("page:2")
    page.goto(f"http://{origin}#records")
    expect(page.locator("#keys")).to_contain_text("page:2", timeout=SHOWN_MS_MAX)
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/ui/#dashboard")
    expect(page.locator("#state")).to_have_text("ready", timeout=SHOWN_MS_MAX)
    page.get_by_role("link", name="Records").click()
    expect(page.locator("#failure")).to_contain_text("Log in", timeout=SHOWN_MS_MAX)
    expect(page.locator("#keys")).not_to_contain_text("page:2")
    page.context.close()
    print("logout: ok")


MANY_KEYS = 1_000_000

# Time over which the processor time of a server is taken, in seconds.
IDLE_SECONDS = 60


def browse_many(browser):
    """A page of many keys has few rows."""
    lines, name = FOLDER / "many.tsv", "many.tcb"
    lines.write_bytes(b"".join(b"key:%07d\t1\n" % key for key in range(MANY_KEYS)))
    subprocess.run([PROGRAM, "import", lines, "--into", FOLDER / name], check=True)
    server = Server((name,), slow_seconds=1000)
    server.start()
    try:
        page, complaints, _ = open_page(browser, server, "wide", "light", "#records")
        keys = page.locator("#keys li")
        expect(keys).to_have_count(100, timeout=SHOWN_MS_MAX)
        paint = page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        )
        page.get_by_label("that begin with").fill("key:05")
        page.get_by_role("button", name="Show", exact=True).click()
        expect(keys.first).to_have_text("key:0500000")
        page.get_by_role("button", name="Next page").click()
        expect(keys.first).to_have_text("key:0500100")
        assert page.locator("tr, li").count() <= 500, "too many rows"
        page.get_by_role("link", name="Dashboard").click()
        records = card(page, "Records").locator(".figure")
        expect(records).to_have_text("1.00 M ", timeout=SHOWN_MS_MAX)
        assert page.locator("tr, li").count() <= 500, "too many rows"
        assert not complaints, complaints
        page.context.close()
        print(f"{MANY_KEYS} keys: ok, first paint after {paint:.0f} ms")
    finally:
        server.stop()


def take_cost(browser, server):
    """Prints the processor time of an idle server with a dashboard, and without."""
    page, _, _ = open_page(browser, server, "wide", "light")
    expect(page.locator("#state")).to_have_text("ready", timeout=SHOWN_MS_MAX)
    with_page = processor_share(server)
    page.context.close()
    alone = processor_share(server)
    print(
        f"processor of the server over {IDLE_SECONDS} s: {with_page:.2%} of a core with a"
        f" dashboard, {alone:.2%} without"
    )


def weigh():
    """The files of the console are small."""
    folder = pathlib.Path(__file__).parents[2] / "crates/server/src/monitor/console"
    files = [file.read_bytes() for file in folder.iterdir()]
    raw = sum(len(file) for file in files)
    compressed = sum(len(gzip.compress(file)) for file in files)
    assert raw <= 60 << 10 and compressed <= 20 << 10, (raw, compressed)
    print(f"files: {raw} bytes, {compressed} if each is compressed")


def processor_share(server):
    """Returns the share of a core that a server takes for some time."""

    def ticks():
        text = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(IDLE_SECONDS)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK") / IDLE_SECONDS


def draw_gaps(browser, server):
    """A value that is missing is a gap in its line, and not 0."""
    page, _, _ = open_page(browser, server, "wide", "light")
    drawn = """async () => {
      const { Chart } = await import("./view.js");
      const chart = new Chart("line", 1);
      chart.draw([[1, null, 2, undefined]], 4);
      return chart.node.querySelector(".k0").getAttribute("d");
    }"""
    line = page.evaluate(drawn)
    assert line == "M0.0 22.5h0M200.0 3.0h0", line
    page.context.close()
    print("gaps: ok")


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


def press(page, text):
    """Goes to an element whose text ends so by Tab, and presses Enter."""
    while not page.evaluate("document.activeElement.textContent").endswith(text):
        page.keyboard.press("Tab")
        reached = page.evaluate("document.activeElement.tagName")
        assert reached != "BODY", f"{text} is not reached by Tab"
    page.keyboard.press("Enter")


def use_keyboard(browser, server):
    page, _, _ = open_page(browser, server, "wide", "light")
    two = page.get_by_role("button", name="two.tcb")
    expect(two).to_be_visible(timeout=SHOWN_MS_MAX)
    press(page, "Records")
    press(page, "two.tcb")
    expect(two).to_have_attribute("aria-pressed", "true", timeout=SHOWN_MS_MAX)
    panel, question = page.locator("#record"), page.get_by_role("dialog")
    expect(page.locator("#keys")).to_contain_text("doc:json", timeout=SHOWN_MS_MAX)
    press(page, "doc:json")
    expect(panel.locator(".name")).to_have_text("doc:json")
    press(page, "Hex")
    expect(panel.locator("pre")).to_contain_text("7b 22 6e")
    press(page, "Delete")
    expect(question).to_be_visible()
    press(page, "Cancel")
    expect(question).to_have_count(0)
    assert http(server.ports[1], "HEAD", "doc:json")[0] == 200
    page.context.close()
    print("keyboard: ok")


def main():
    weigh()
    server = Server()
    server.start()
    try:
        with sync_playwright() as playwright:
            browser = launch(playwright)
            if sys.argv[4:] == ["cost"]:
                take_cost(browser, server)
                return
            with load(server.ports[0]):
                for width in WIDTHS:
                    for colour in COLOURS:
                        look(browser, server, width, colour)
            fill(server.ports[1])
            for width in WIDTHS:
                for colour in COLOURS:
                    look_at_records(browser, server, width, colour)
                    act(browser, server, width, colour)
            use_keyboard(browser, server)
            change_records(browser, server)
            show_stored_pages(browser, server)
            frame_and_post(browser, server)
            leave_before_the_keys(browser, server)
            log_in(browser)
            draw_gaps(browser, server)
            browse_many(browser)
            # A client that goes on could take the port of the server that has ended.
            lose_and_find(browser, server)
            browser.close()
    finally:
        server.stop()


if __name__ == "__main__":
    main()
