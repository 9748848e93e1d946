"""The live page in a real browser: headless Chromium draws it, and what it shows is read from its document and from screenshots.
Run by ctest as tools/page; skipped where no Chromium is installed.

Usage: page_test.py SCENE, which is tests/debug/page_scene.cpp. DUNLIN_SCREENSHOTS=FOLDER keeps the pictures.
"""

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

SCENE = sys.argv.pop() if len(sys.argv) > 1 else None
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("DUNLIN_")}
BROWSER = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1250,1500"]


def pixels(png):
    """(width, height, rows of bytes, bytes of a pixel) of a PNG without interlacing, of 8 bits."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data = 8, b""
    while at < len(png):
        size, kind = struct.unpack_from(">I4s", png, at)
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack_from(">IIBB", png, at + 8)
        elif kind == b"IDAT":
            data += png[at + 8:at + 8 + size]
        at += size + 12
    assert depth == 8
    step = {2: 3, 6: 4}[colour]
    raw, rows, above = zlib.decompress(data), [], bytearray(width * step)
    for y in range(height):
        kind, row = raw[y * (width * step + 1)], bytearray(raw[y * (width * step + 1) + 1:(y + 1) * (width * step + 1)])
        for x in range(len(row) if kind else 0):
            left, up = row[x - step] if x >= step else 0, above[x]
            corner = above[x - step] if x >= step else 0
            if kind == 4:
                p = left + up - corner
                nearest = min((abs(p - left), 0, left), (abs(p - up), 1, up), (abs(p - corner), 2, corner))[2]
            row[x] = (row[x] + (0, left, up, (left + up) // 2, nearest if kind == 4 else 0)[kind]) & 255
        rows.append(bytes(row))
        above = row
    return width, height, rows, step


@unittest.skipIf(BROWSER is None, "no Chromium is installed (Debian: apt-get install chromium)")
class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="dunlin-page-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def scene(self, *arguments, procs="2"):
        program = subprocess.Popen([SCENE, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env=dict(ENVIRONMENT, DUNLIN_MAXPROCS=procs))
        url = program.stdout.readline().strip()

        def end():
            program.stdin.close()
            program.wait(timeout=60)
            program.stdout.close()

        self.addCleanup(end)
        return url

    def browse(self, url, *options):
        """What the browser prints. Its clock goes as fast as the answers come: some ten seconds of the page's."""
        profile = tempfile.mkdtemp(dir=self.folder)
        done = subprocess.run([BROWSER, *FLAGS, "--user-data-dir=" + profile, "--virtual-time-budget=9000", *options, url],
                              capture_output=True, text=True, timeout=280, env=dict(ENVIRONMENT, HOME=self.folder))
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return done.stdout

    def document(self, url):
        text = self.browse(url, "--dump-dom")
        self.assertFalse('class="bad"' in text, re.findall(r'id="when".*', text)[:1])
        return text

    def part(self, document, name):
        return document[document.index(f'id="{name}"'):].split("<h2>")[0]

    def test_everything_is_drawn_and_drawn_again(self):
        for procs in ("1", "2", "8"):
            with self.subTest(procs=procs):
                page = self.document(self.scene("100", "", "compute", procs=procs))
                self.assertGreaterEqual(int(re.search(r'data-refreshes="(\d+)"', page)[1]), 2)
                self.assertIn("<b>P0</b>", self.part(page, "lanes"))
                self.assertEqual(self.part(page, "lanes").count("<b>P"), int(procs))
                self.assertIn("the last", self.part(page, "window"))
                self.assertRegex(self.part(page, "hogs"), r"goroutine \d+ .hog.")
                self.assertRegex(self.part(page, "locks"), r"page_scene.cpp:\d+</td><td>goroutine \d+ .worker")
                self.assertIn("<svg", self.part(page, "graph"))
                self.assertIn('class="circle"', self.part(page, "graph"))
                self.assertIn("in a circle", self.part(page, "graph"))
                self.assertIn("chan receive", self.part(page, "groups"))
                self.assertIn("shard=odd", self.part(page, "groups"))
                for link in ("/dump", "/metrics", "/debug/pprof/profile?seconds=5", "/debug/pprof/trace?seconds=2", "/trace"):
                    self.assertIn(f'href="{link.replace("&", "&amp;")}"', page)

    def test_the_token_goes_along(self):
        page = self.document(self.scene("3", "se cret") + "?token=se%20cret")
        self.assertIn("chan receive", self.part(page, "groups"))
        self.assertIn('href="/dump?token=se%20cret"', page)

    def test_a_hundred_thousand_goroutines(self):
        page = self.document(self.scene("100000", "", "compute"))
        self.assertIn("100,", self.part(page, "states"))
        self.assertIn("50,000", self.part(page, "groups"))

    def test_the_picture_has_lanes_and_a_circle(self):
        picture = os.path.join(os.environ.get("DUNLIN_SCREENSHOTS", self.folder), "page.png")
        self.browse(self.scene("100", "", "compute"), "--screenshot=" + picture)
        with open(picture, "rb") as file:
            width, height, rows, step = pixels(file.read())
        self.assertGreaterEqual((width, height), (1200, 1300))
        # The lanes: rows with many pixels that are neither paper nor ink.
        most = 0
        for row in rows:
            most = max(most, sum(max(row[x:x + 3]) - min(row[x:x + 3]) > 60 for x in range(0, len(row), step)))
        self.assertGreater(most, 20)
        # And red, of the goroutines that wait in a circle: b3261e.
        self.assertTrue(any(b"\xb3\x26\x1e" in row for row in rows))


if __name__ == "__main__":
    unittest.main()
