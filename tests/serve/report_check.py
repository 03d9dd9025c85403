#!/usr/bin/env python3
"""Opens pages that cloob writes (reports, search sheets) from file:// in a headless Chromium, at 360 and 1440 pixels, light and dark.

    python3 tests/serve/report_check.py report.html sheet.html [--out DIR]

Fails on a console error, horizontal overflow, an image that does not decode, a control without a name, a request to another place, or a finding
of axe-core. Needs what tests/serve/page_check.py needs. --out keeps a screenshot of each whole page.
"""
import argparse
import pathlib
import sys
import tempfile
import time

from page_check import Failed, Page, axe_source, need

MAX_PIXELS = 12000  # of a screenshot's height


def look(p, path, width, dark):
    where = f"{path.name} at {width} px, {'dark' if dark else 'light'}"
    p.start(width, 900, dark)
    p.driver.get(path.absolute().as_uri())
    p.js("for (const d of document.querySelectorAll('details')) d.open = true")
    height = p.js("return document.documentElement.scrollHeight")
    p.resize(width, min(height, MAX_PIXELS))  # everything in view, so that lazy images load
    time.sleep(1)
    p.audit(where)
    outside = p.js("return performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith('data:') && !n.startsWith('file:'))")
    need(not outside, f"{where}: it asks for {outside}")
    p.shot(f"{path.stem}-{width}-{'dark' if dark else 'light'}")
    return where, height, p.js("return document.images.length")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("page", nargs="+", type=pathlib.Path)
    a.add_argument("--axe", help="axe.min.js")
    a.add_argument("--out", type=pathlib.Path)
    args = a.parse_args()
    failed, seen = 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        p = Page("", args.out or pathlib.Path(scratch))
        p.out.mkdir(parents=True, exist_ok=True)
        p.axe = axe_source(args.axe)
        for path in args.page:
            for width in (360, 1440):
                for dark in (False, True):
                    try:
                        where, height, images = look(p, path, width, dark)
                        seen += 1
                        print(f"ok    {where}: {height} px high, {images} images")
                    except Failed as e:
                        failed += 1
                        print(f"FAIL  {e}")
        p.stop()
    for line in p.findings + [f"console: {e}" for e in p.errors]:
        print("FAIL  " + line)
    print(f"{seen} views, {failed} failed, {len(p.errors)} console errors, {len(p.findings)} audit findings" + ("" if p.axe else " (without axe-core)"))
    return 1 if failed or p.errors or p.findings else 0


if __name__ == "__main__":
    sys.exit(main())
