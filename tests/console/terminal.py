"""Terminal: runs a program in a terminal of its own, and draws its last screen as SVG."""

import fcntl
import html
import os
import pty
import re
import select
import signal
import struct
import termios
import time

COLUMNS, ROWS = 100, 34

# Width of a character and height of a line, in pixels.
WIDTH, HEIGHT = 8.4, 18

# Colours of the parameters of escape sequences, on a dark ground.
COLOURS = {
    "31": "#ff9a91", "32": "#6fd495", "33": "#f0c560",
    "34": "#83a8ff", "35": "#d9a0f0", "36": "#7fd3e0",
}

FAINT = "#98a2b3"

SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


def capture(command, seconds):
    """Runs a program for a time. Returns the rows of its screen: lists of styles and texts."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(TERM="xterm-256color", LC_ALL="C.UTF-8")
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    # A program that has looked at the size already is told.
    os.kill(process, signal.SIGWINCH)
    written, until = b"", time.monotonic() + seconds
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.2)[0]:
            written += os.read(terminal, 65536)
    os.write(terminal, b"q")
    os.waitpid(process, 0)
    os.close(terminal)
    return rows_of(written.decode())


def rows_of(text):
    """Returns the rows after a text: it goes to a row, clears it, and writes it."""
    rows, row = [[] for _ in range(ROWS)], 0
    style, at = "", 0
    # An end that changes nothing, so that the text before it counts.
    for sequence in SEQUENCE.finditer(text + "\x1b[0m"):
        if text[at : sequence.start()] and row < ROWS:
            rows[row].append((style, text[at : sequence.start()]))
        at = sequence.end()
        parameters, order = sequence.groups()
        if order == "H":
            row, style = int(parameters.split(";")[0] or 1) - 1, ""
        elif order == "K" and row < ROWS:
            rows[row] = []
        elif order == "J":
            rows = [[] for _ in range(ROWS)]
        elif order == "m":
            style = "" if parameters == "0" else parameters
    return rows


def draw(rows):
    """Returns a picture of rows as SVG, whose texts are texts."""
    while rows and not rows[-1]:
        rows = rows[:-1]
    width, height = round(COLUMNS * WIDTH) + 24, len(rows) * HEIGHT + 20
    lines = []
    for number, row in enumerate(rows):
        column = 0
        for style, text in row:
            codes = style.split(";")
            colour = next((COLOURS[code] for code in codes if code in COLOURS), None)
            colour = colour or (FAINT if "2" in codes else None)
            attributes = f' fill="{colour}"' if colour else ""
            attributes += ' font-weight="bold"' if "1" in codes else ""
            shown = text.strip()
            if shown:
                start = column + len(text) - len(text.lstrip())
                # Each part has its place and its width, whatever the font.
                lines.append(
                    f'<text x="{12 + start * WIDTH:.1f}" y="{number * HEIGHT + 24}"'
                    f' textLength="{len(shown) * WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"'
                    f"{attributes}>{html.escape(shown)}</text>"
                )
            column += len(text)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" role="img" aria-label="tyrant top in a terminal">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#12151b"/>\n'
        '<g font-family="ui-monospace, DejaVu Sans Mono, monospace" font-size="14" fill="#e8ebf1"'
        ' xml:space="preserve">\n' + "\n".join(lines) + "\n</g>\n</svg>\n"
    )
