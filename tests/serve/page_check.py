#!/usr/bin/env python3
"""Drives the server's page in a headless Chromium: search, an image dropped, more like this, classify, compare, map, a live run.

    python3 tests/serve/page_check.py --cloob build/cloob [--out DIR]       makes a small world, trains on it, serves it
    python3 tests/serve/page_check.py --url http://127.0.0.1:8080           against a server that runs

Needs selenium, chromium and chromedriver. With the package axe-playwright-python (or --axe FILE) it also runs the accessibility
audit axe-core. Fails on any step, console error, horizontal overflow, image that does not decode, or audit finding. --out keeps
screenshots of every view at 360 and 1440 pixels, light and dark.
"""
import argparse
import base64
import importlib.util
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

TABS = ["search", "classify", "compare", "map", "runs"]
FLAGS = ["--headless=new", "--no-sandbox", "--hide-scrollbars", "--use-gl=angle", "--use-angle=swiftshader",
         "--enable-unsafe-swiftshader", "--force-color-profile=srgb"]

DROP = """
const [selector, name, data] = arguments, bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
const transfer = new DataTransfer();
transfer.items.add(new File([bytes], name, { type: name.endsWith("png") ? "image/png" : "image/jpeg" }));
for (const kind of ["dragenter", "dragover", "drop"])
  document.querySelector(selector).dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: transfer }));
"""
DROP_MANY = """
const [selector, files] = arguments, transfer = new DataTransfer();
for (const [name, data] of files) transfer.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name, { type: "image/jpeg" }));
document.querySelector(selector).dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: transfer }));
"""
PASTE = """
const [name, data] = arguments, bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0)), transfer = new DataTransfer();
transfer.items.add(new File([bytes], name, { type: name.endsWith("png") ? "image/png" : "image/jpeg" }));
document.dispatchEvent(new ClipboardEvent("paste", { bubbles: true, cancelable: true, clipboardData: transfer }));
"""


class Failed(Exception):
    pass


def need(condition, what):
    if not condition:
        raise Failed(what)


class Page:
    def __init__(self, url, out):
        self.url, self.out, self.driver, self.errors, self.findings = url, out, None, [], []
        self.axe = None

    def start(self, width=1440, height=900, dark=False):
        self.stop()
        options = webdriver.ChromeOptions()
        for flag in FLAGS + [f"--window-size={width},{height}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        options.add_experimental_option("prefs", {"download.default_directory": str(self.out / "downloads")})
        driver = shutil.which("chromedriver") or "/usr/lib/chromium-browser/chromedriver"
        self.driver = webdriver.Chrome(service=Service(driver), options=options)
        self.resize(width, height)
        self.scheme(dark)

    def resize(self, width, height):
        self.width = width
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})

    def scheme(self, dark):
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def stop(self):
        if self.driver:
            self.collect()
            self.driver.quit()
            self.driver = None

    def collect(self):
        for line in self.driver.get_log("browser"):
            if line["level"] in ("SEVERE", "WARNING") and "swiftshader" not in line["message"].lower() and "GPU stall" not in line["message"]:
                self.errors.append(line["message"])

    def go(self, address="/"):
        self.driver.get(self.url + address)

    def js(self, code, *args):
        return self.driver.execute_script(code, *args)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def wait(self, test, what, seconds=20):
        try:
            return WebDriverWait(self.driver, seconds, 0.05).until(lambda _: test())
        except Exception:
            shown = self.js("return document.getElementById('failure').textContent")
            raise Failed(f"{what} did not come within {seconds} s" + (f" (the page says: {shown})" if shown else ""))

    def keys(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()

    def paths(self):
        return self.js("return [...document.querySelectorAll('.cell')].filter(c => c.querySelector('img')).sort((a, b) => "
                       "a.getAttribute('aria-posinset') - b.getAttribute('aria-posinset')).map(c => c.querySelector('img').alt)")

    def settle(self):
        time.sleep(0.4)
        self.wait(lambda: self.js("return [...document.images].every(i => i.complete || i.loading === 'lazy')"), "images")

    def shot(self, name):
        self.driver.save_screenshot(str(self.out / (name + ".png")))

    def audit(self, where):
        wide = self.js("return [document.documentElement.scrollWidth, innerWidth]")
        need(wide[0] <= wide[1], f"{where}: {wide[0]} pixels wide in a window of {wide[1]}")
        broken = self.js("return [...document.images].filter(i => i.src && i.complete && !i.naturalWidth && i.offsetParent).map(i => i.src.slice(0, 90))")
        need(not broken, f"{where}: images that do not decode: {broken}")
        unnamed = self.js("return [...document.querySelectorAll('button, input, select, textarea, a')].filter(e => e.offsetParent && "
                          "!(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim() || e.title)).map(e => e.outerHTML.slice(0, 90))")
        need(not unnamed, f"{where}: controls without a name: {unnamed}")
        if self.axe:
            self.js(self.axe)
            found = self.driver.execute_async_script("const done = arguments[0]; axe.run().then(r => done(r.violations.map(v => "
                                                     "v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 110)).join(' | '))))")
            self.findings += [f"{where}: {f}" for f in found]


# ---- the steps ---------------------------------------------------------------------------------------

def first_screen(p, _):
    p.go()
    p.wait(lambda: len(p.paths()) > 5, "images on the first screen")
    p.settle()
    paint = p.js("return performance.getEntriesByType('paint').find(e => e.name === 'first-contentful-paint')?.startTime")
    return f"{len(p.paths())} images, first paint after {paint or 0:.0f} ms"


def search_words(p, c):
    p.keys("/")
    need(p.js("return document.activeElement.id") == "text", "/ does not focus the query")
    before = p.paths()
    p.keys(c.words, Keys.ENTER)
    p.wait(lambda: p.paths() and p.paths() != before, "other results")
    need("q=" in p.driver.current_url, "the address bar does not hold the query")
    scores = [float(b.text.replace("−", "-")) for b in p.all(".cell .cap b")[:8]]
    need(len(scores) > 3 and all(-1 <= s <= 1 for s in scores), f"scores {scores}")
    c.found = p.paths()[0]
    return f"“{c.words}”: {c.found} first; {p.one('#found').text}"


def terms(p, c):
    """Exclude keeps the query: words alone become a term, the next words are excluded; words next to a term are excluded at once."""
    minus, chips = p.one("#minus"), lambda: p.js("return [...document.querySelectorAll('.chip')].map(c => c.querySelector('button').textContent)")
    need(minus.is_enabled(), "words do not enable Exclude")
    minus.click()
    p.wait(lambda: chips() == ["+ " + c.words], "the query as a term")
    need(p.one("#text").get_attribute("placeholder") == "Words to exclude", "the field does not ask for the words to exclude")
    p.keys("snow")
    time.sleep(0.4)
    need("q=" not in p.driver.current_url and len(p.all(".chip.less")) == 0, "words to exclude change the query while they are typed")
    p.keys(Keys.ENTER)
    p.wait(lambda: chips() == ["+ " + c.words, "− snow"], "the exclusion")
    p.one("#text").send_keys("water")
    minus.click()
    p.wait(lambda: chips() == ["+ " + c.words, "− snow", "− water"], "the second exclusion")
    p.js("document.querySelectorAll('.chip button')[2].click()")
    p.wait(lambda: len(p.all(".chip.less")) == 1, "the switch from less to more")
    p.driver.back()
    p.wait(lambda: len(p.all(".chip.less")) == 2, "Back")
    p.one("#clear").click()
    p.wait(lambda: not p.all(".chip") and not p.one("#minus").is_enabled(), "Exclude disabled without a query")
    return "query kept, two exclusions, switched, Back, disabled without a query"


def unreadable(p, c):
    """One file of several that is no image is named, and the others count: in search, and in Classify where the server refuses it."""
    good, bad = (base64.b64encode(d).decode() for d in (c.image.read_bytes(), b"\xff\xd8\xff no image"))
    p.go()
    p.wait(lambda: len(p.paths()) > 5, "images")
    p.js(DROP_MANY, "#query", [["bad.jpg", bad], [c.image.name, good]])
    p.wait(lambda: p.all(".chip img") and p.all(".cell .cap b"), "results for the other image")
    need("bad.jpg is not an image" in p.one("#unreadable").text, p.one("#unreadable").text)
    p.go("/?tab=classify")
    p.wait(lambda: p.one("#classify-drop").is_displayed(), "the view")
    p.js(DROP_MANY, "#classify-drop", [[c.image.name, good], ["bad.jpg", bad]])
    p.wait(lambda: p.all("#classify-cards .bar"), "bars of the other image")
    time.sleep(0.5)
    need("bad.jpg is not an image" in p.one("#unreadable").text, p.one("#unreadable").text)
    p.shot("unreadable")
    return p.one("#unreadable").text


def shortcuts(p, c):
    p.go()
    p.wait(lambda: len(p.paths()) > 5, "images")
    p.js("document.activeElement.blur()")
    p.keys("?")
    p.wait(lambda: p.one("#keys").is_displayed(), "the list of shortcuts")
    p.audit("shortcuts")
    p.shot("shortcuts")
    p.keys(Keys.ESCAPE)
    p.wait(lambda: not p.one("#keys").is_displayed(), "Esc")
    p.one("#text").send_keys("what?")
    need(not p.one("#keys").is_displayed(), "? in a text field opens the list")
    return f"{len(p.all('#keys dt'))} shortcuts"


def wrong_key(p, c):
    if not c.keyed:
        return "no server with a key"
    home, p.url = p.url, c.keyed
    p.go()
    p.wait(lambda: p.one("#key-form").is_displayed(), "the question for a key")
    need(not p.one("#key-wrong").is_displayed(), "a key is called wrong before one is given")
    p.one("#key").send_keys("not-the-key", Keys.ENTER)
    p.wait(lambda: p.one("#key-wrong").is_displayed(), "the message that the key is wrong")
    p.shot("wrong-key")
    p.one("#key").clear()
    p.one("#key").send_keys(c.key, Keys.ENTER)
    p.wait(lambda: not p.one("#key-form").is_displayed() and p.one("#nothing").is_displayed(), "the page after the right key")
    p.collect()
    p.errors = [e for e in p.errors if "401" not in e]  # the browser logs every refusal
    p.url = home
    return "a wrong key, then the right one"


def taken(p, c):
    if not c.dated:
        return "no photo with a date"
    p.go("/?open=" + c.dated)
    p.wait(lambda: p.js("return document.getElementById('viewer').open"), "the photo")
    p.go("/?term=%2Blike%3A" + c.dated + "&open=" + c.dated)
    p.wait(lambda: "taken" in p.one("#viewer-facts").text, "the capture date")
    need("2019-06-30 18:12" in p.one("#viewer-facts").text, p.one("#viewer-facts").text)
    return p.one("#viewer-facts").text.replace("\n", " ")


def documented(p, c):
    for width in (1440, 360):
        p.resize(width, 900)
        p.go("/docs#v1_search")
        p.wait(lambda: len(p.all("#endpoints details")) > 20, "endpoints")
        p.wait(lambda: p.one("#v1_search").get_attribute("open"), "the endpoint that the address names")
        shown = p.js("return document.getElementById('v1_search').textContent")
        need("terms?:" in shown, shown[:300])
        p.audit(f"docs-{width}")
        p.shot(f"docs-{width}")
        p.one("#find").clear()
        p.one("#find").send_keys("ollama embed")
        left = p.js("return [...document.querySelectorAll('#endpoints details')].filter(d => !d.hidden).map(d => d.id)")
        need("api_embed" in left and len(left) < 5, f"finding an endpoint: {left}")
    p.resize(1440, 900)
    return f"{len(p.all('#endpoints details'))} endpoints"


def dropped(p, c):
    p.go()
    p.wait(lambda: len(p.paths()) > 5, "images")
    p.js(DROP, "#query", c.image.name, base64.b64encode(c.image.read_bytes()).decode())
    p.wait(lambda: p.all(".chip img"), "a chip with the image")
    p.wait(lambda: p.all(".cell .cap b"), "results with scores")
    score = float(p.all(".cell .cap b")[0].text)
    need(c.mock or score > 0.98, f"the image itself is in the index, but the best score is {score}")
    p.driver.refresh()
    p.wait(lambda: p.all(".chip img") and p.all(".cell .cap b"), "the dropped image after a reload")
    return f"best score {score:.2f}, kept over a reload"


def pasted(p, c):
    p.go()
    p.wait(lambda: len(p.paths()) > 5, "images")
    p.js(PASTE, c.image.name, base64.b64encode(c.image.read_bytes()).decode())
    p.wait(lambda: p.all(".chip img"), "a chip with the pasted image")
    return "a chip"


def keyboard(p, c):
    p.go()
    p.wait(lambda: len(p.paths()) > 5, "images")
    p.one("#text").send_keys(Keys.ARROW_DOWN)
    p.wait(lambda: p.js("return document.activeElement.closest('.cell')?.getAttribute('aria-posinset')") == "1", "focus on the first image")
    p.keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    need(p.js("return document.activeElement.closest('.cell').getAttribute('aria-posinset')") == "2", "arrows do not walk")
    p.keys("x")
    p.wait(lambda: "1 image selected" in p.one("#chosen").text, "a selection")
    p.keys(Keys.ENTER)
    p.wait(lambda: p.js("return document.getElementById('viewer').open"), "the large image")
    p.wait(lambda: p.js("return document.getElementById('viewer-image').naturalWidth") > 0, "its pixels")
    p.shot("viewer")
    p.audit("viewer")
    p.keys(Keys.ESCAPE)
    p.wait(lambda: not p.js("return document.getElementById('viewer').open"), "Esc")
    p.keys("m")
    p.wait(lambda: p.all(".chip img") and p.all(".cell .cap b"), "more like this")
    p.settle()
    need(c.mock or float(p.all(".cell .cap b")[0].text) > 0.98, "an image is not most like itself")
    p.driver.back()
    p.wait(lambda: not p.all(".chip"), "Back")
    return "down, right, x, Enter, Esc, m, Back"


def scrolled(p, _):
    p.go()
    p.wait(lambda: len(p.paths()) > 5, "images")
    total = int(p.one("#found").text.split()[0].replace(",", ""))
    p.js("scrollTo(0, document.body.scrollHeight)")
    p.wait(lambda: p.js("return Math.max(...[...document.querySelectorAll('.cell img')].map(i => +i.closest('.cell').getAttribute('aria-posinset')))") == total,
           "the last image")
    cells = len(p.all(".cell"))
    need(cells < 200, f"{cells} cells in the document")
    return f"the last of {total} images, {cells} cells in the document"


def filtered(p, _):
    p.js("scrollTo(0, 0)")
    p.one("#text").send_keys("red", Keys.ENTER)
    p.wait(lambda: p.all(".cell .cap b"), "scores")
    p.js("const m = document.getElementById('min'); m.value = 1; m.dispatchEvent(new Event('input', { bubbles: true }))")
    p.wait(lambda: p.one("#nothing").is_displayed(), "the reason of an empty result")
    need("Lower the threshold" in p.one("#nothing").text, p.one("#nothing").text)
    return p.one("#nothing").text[:60]


def downloads(p, _):
    p.go()
    p.wait(lambda: len(p.paths()) > 5, "images")
    folder = p.out / "downloads"
    p.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    for kind in ("csv", "json"):
        p.one("#" + kind).click()
        p.wait(lambda: (folder / f"images.{kind}").exists(), f"images.{kind}")
    rows = json.loads((folder / "images.json").read_text())
    lines = (folder / "images.csv").read_text().splitlines()
    need(len(rows) + 1 == len(lines) and rows[0]["path"], "the lists differ")
    return f"{len(rows)} rows"


def classified(p, c):
    p.go("/?tab=classify")
    p.wait(lambda: p.one("#classify-drop").is_displayed(), "the view")
    p.js("sessionStorage.clear()")
    p.js(DROP, "#classify-drop", c.image.name, base64.b64encode(c.image.read_bytes()).decode())
    labels = p.one("#labels")
    labels.clear()
    labels.send_keys("ball\nfish\nhouse\ncar")
    p.wait(lambda: len(p.all("#classify-cards .bar")) == 4, "four bars")
    shares = [float(b.text.split()[0]) for b in p.all("#classify-cards .bar b")]
    need(abs(sum(shares) - 100) < 2, f"shares {shares} do not sum to 100")
    labels.send_keys("\ntree")
    p.wait(lambda: len(p.all("#classify-cards .bar")) == 5, "the fifth bar as one types")
    p.one("#classify-some").click()
    p.wait(lambda: len(p.all("#classify-cards .card")) > 3 and all(k.find_elements(By.CSS_SELECTOR, ".bar") for k in p.all("#classify-cards .card")),
           "more images")
    return f"{p.all('#classify-cards .bar span')[0].text} {p.all('#classify-cards .bar b')[0].text}; {len(p.all('#classify-cards .card'))} images"


def compared(p, _):
    p.one("nav a[data-tab=compare]").click()
    p.wait(lambda: len(p.all("table.sim")) == 1, "the matrix")
    cells = len(p.all("table.sim td"))
    p.one("#hopfield").click()
    p.wait(lambda: len(p.all("table.sim")) == 2, "the matrix after retrieval")
    need(len(p.all("table.sim td")) == 2 * cells, "cells")
    first, second = [[td.text for td in t.find_elements(By.TAG_NAME, "td")] for t in p.all("table.sim")]
    need(first != second, "retrieval changes nothing")
    return f"{cells} cells twice"


def mapped(p, c):
    p.one("nav a[data-tab=map]").click()
    p.wait(lambda: "image" in p.one("#map-note").text, "the map", 120)
    time.sleep(1.5)
    p.shot("map")
    p.one("#map-text").send_keys(c.words)
    p.wait(lambda: "bright" in p.one("#map-note").text, "the neighbourhood")
    time.sleep(1)
    p.shot("map-words")
    box = p.one("#map-box")
    p.one("#lasso").click()
    w, h = box.size["width"], box.size["height"]
    move = ActionChains(p.driver, duration=20).move_to_element_with_offset(box, -w // 3, -h // 3).click_and_hold()
    for x, y in ((2 * w // 3, 0), (0, 2 * h // 3), (-2 * w // 3, 0)):
        move = move.move_by_offset(x, y)
    move.release().perform()
    p.wait(lambda: p.one("#map-chosen").is_displayed(), "a selection")
    chosen = p.one("#map-count").text
    p.one("#lasso").click()
    p.one("#map-none").click()
    hovered = False
    for k in range(60):
        ActionChains(p.driver, duration=5).move_to_element_with_offset(box, (k % 10 - 5) * w // 14, (k // 10 - 3) * h // 9).perform()
        if p.one("#map-tip").is_displayed():
            hovered = True
            break
    need(hovered, "hovering shows no image")
    frames = p.driver.execute_async_script("""
const done = arguments[0], box = document.getElementById('map-box'), times = [];
let n = 0, last = performance.now();
const step = (t) => { times.push(t - last); last = t;
  box.dispatchEvent(new WheelEvent('wheel', { deltaY: n % 2 ? 30 : -30, clientX: 600, clientY: 500, cancelable: true }));
  if (++n < 40) requestAnimationFrame(step); else done(times.slice(5).sort((a, b) => a - b)); };
requestAnimationFrame(step);""")
    return f"{chosen} by lasso; hover shows an image; median frame {frames[len(frames) // 2]:.0f} ms (software GL)"


def live(p, c):
    p.one("nav a[data-tab=runs]").click()
    p.wait(lambda: p.all(".chart canvas"), "curves", 60)
    last = lambda: p.js("return document.querySelector('.chart canvas').getAttribute('aria-label')")
    before = last()
    p.wait(lambda: last() != before, "a curve that grows", 60)
    return f"{len(p.all('.chart'))} charts, growing"


STEPS = [first_screen, search_words, terms, dropped, pasted, unreadable, shortcuts, wrong_key, taken, documented, keyboard, scrolled, filtered, downloads, classified, compared, mapped, live]


def looks(p, c):
    """Every tab at two widths, light and dark: no overflow, images decode, controls have names, axe finds nothing."""
    for width, height in ((1440, 900), (360, 740)):
        for dark in (False, True):
            p.start(width, height, dark)
            for tab in TABS:
                p.go("/?q=" + c.words.replace(" ", "+") if tab == "search" else "/?tab=" + tab)
                p.wait(lambda: p.one("#view-" + tab).is_displayed(), tab)
                if tab in ("classify", "compare"):
                    p.one(f"#{tab}-some").click()
                    p.wait(lambda: p.all("#classify-cards .bar" if tab == "classify" else "table.sim"), tab)
                elif tab == "map":
                    p.wait(lambda: "image" in p.one("#map-note").text, "the map", 120)
                    time.sleep(1.2)
                elif tab == "runs":
                    p.wait(lambda: p.all(".chart canvas"), "curves")
                else:
                    p.wait(lambda: p.all(".cell .cap b"), "results")
                p.settle()
                name = f"{tab}-{width}-{'dark' if dark else 'light'}"
                p.shot(name)
                p.audit(name)
    return f"{4 * len(TABS)} views" + (f", axe-core: {len(p.findings)} findings" if p.axe else ", axe-core not found")


def focus_order(p, _):
    """Tab walks in the order of the document and every stop can be seen and has a name."""
    p.start()
    p.go()
    p.wait(lambda: len(p.paths()) > 5, "images")
    p.js("document.activeElement.blur(); scrollTo(0, 0)")
    seen = []
    for _ in range(22):
        p.keys(Keys.TAB)
        stop = p.js("const e = document.activeElement, r = e.getBoundingClientRect(); return [e.id || e.textContent.trim().slice(0, 20) || e.getAttribute('aria-label'), "
                    "r.width > 0 && r.height > 0 && r.bottom > 0 && r.top < innerHeight, getComputedStyle(e).outlineStyle !== 'none' || !!e.closest('.query')]")
        need(stop[0] and stop[1] and stop[2], f"focus on {stop}")
        seen.append(stop[0])
    need(seen.index("text") < seen.index("pick") < seen.index("min") < seen.index("csv"), f"order {seen}")
    return f"{len(seen)} stops, each visible"


# ---- a server to look at -----------------------------------------------------------------------------

class Case:
    mock, words, image = False, "a red ball", None
    keyed, key, dated = None, "correct-horse", None  # a server that asks for a key; a path with a capture date


def date_photo(image):
    """A copy of a JPEG with EXIF's DateTimeOriginal."""
    tiff = (b"MM\0*" + struct.pack(">I", 8) + struct.pack(">HHHII", 1, 0x8769, 4, 1, 26) + struct.pack(">I", 0)
            + struct.pack(">HHHII", 1, 0x9003, 2, 20, 44) + struct.pack(">I", 0) + b"2019:06:30 18:12:40\0")
    data = image.read_bytes()
    copy = image.with_name("camera.jpg")
    copy.write_bytes(data[:2] + b"\xff\xe1" + struct.pack(">H", 8 + len(tiff)) + b"Exif\0\0" + tiff + data[2:])
    return copy.name


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def serve(cloob, folder, case, jobs, epochs=4):
    """Starts the servers and a run to look at; every process is in jobs, also where one of them fails."""
    world = folder / "world"
    subprocess.run([cloob, "synth", "--out", world, "--count", "4000", "--val-count", "300", "--size", "64", "--seed", "3", "--quiet"], check=True)
    train = [cloob, "train", "--train-data", world / "train.tsv", "--val-data", world / "val.tsv", "--model", "tiny", "--batch-size", "64",
             "--lr", "1.5e-3", "--warmup", "20", "--hopfield-warmup", str(20 * epochs), "--vocab-size", "1024", "--logs", folder / "logs",
             "--workers", "1", "--quiet"]
    done = subprocess.run(train + ["--epochs", str(epochs), "--name", "first", "--log-every-n-steps", "5"], check=True, capture_output=True, text=True)
    checkpoint = done.stdout.strip().splitlines()[-1]
    case.dated = date_photo(next((world / "images").rglob("*.jpg")))
    (folder / "key").write_text(case.key + "\n")
    port, keyed = free_port(), free_port()
    case.keyed = f"http://127.0.0.1:{keyed}"
    log = open(folder / "serve.log", "w")
    jobs.append(subprocess.Popen([cloob, "serve", "--checkpoint", checkpoint, "--index", world / "images", "--logs", folder / "logs",
                                  "--port", str(port)], stdout=log, stderr=log))
    jobs.append(subprocess.Popen([cloob, "serve", "--checkpoint", checkpoint, "--api-key-file", folder / "key", "--port", str(keyed)], stdout=log, stderr=log))
    jobs.append(subprocess.Popen([str(a) for a in train] + ["--epochs", "200", "--name", "live", "--log-every-n-steps", "2"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            if json.load(urllib.request.urlopen(url + "/v1/indexes"))["indexes"][0]["images"]:
                return url, next((world / "images").rglob("*.*"))
        except Exception:
            pass
        if jobs[0].poll() is not None:
            break
        time.sleep(0.2)
    raise Failed("the server did not start: " + (folder / "serve.log").read_text()[-500:])


def axe_source(path):
    if not path:
        spec = importlib.util.find_spec("axe_playwright_python")
        path = spec and pathlib.Path(spec.origin).parent / "axe.min.js"
    return pathlib.Path(path).read_text() if path and os.path.exists(path) else None


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--cloob", default="build/cloob")
    a.add_argument("--url")
    a.add_argument("--image", type=pathlib.Path, help="with --url: a file that is in the index")
    a.add_argument("--mock", action="store_true", help="the server's scores mean nothing")
    a.add_argument("--axe", help="axe.min.js")
    a.add_argument("--out", type=pathlib.Path)
    a.add_argument("--only", nargs="*", help="names of steps")
    args = a.parse_args()
    case, jobs, failed = Case(), [], 0
    case.mock, case.image = args.mock, args.image
    with tempfile.TemporaryDirectory() as scratch:
        out = args.out or pathlib.Path(scratch) / "out"
        (out / "downloads").mkdir(parents=True, exist_ok=True)
        p = None
        try:
            url = args.url
            if not url:
                url, case.image = serve(args.cloob, pathlib.Path(scratch), case, jobs)
            p = Page(url, out)
            p.axe = axe_source(args.axe)
            p.start()
            for step in STEPS + [looks, focus_order]:
                if args.only and step.__name__ not in args.only:
                    continue
                try:
                    print(f"ok    {step.__name__:14} {step(p, case)}", flush=True)
                except Failed as e:
                    failed += 1
                    print(f"FAIL  {step.__name__:14} {e}", flush=True)
                    p.shot("failed-" + step.__name__)
            p.stop()
            for line in p.findings + [f"console: {e}" for e in p.errors]:
                failed += 1
                print("FAIL  " + line)
            print(f"{failed} failed, {len(p.errors)} console errors, {len(p.findings)} audit findings")
        finally:
            if p and p.driver:
                p.driver.quit()
            for job in jobs:
                job.terminate()
                job.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as e:
        sys.exit(f"page_check: {e}")
