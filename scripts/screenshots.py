#!/usr/bin/env python3
"""Takes the pictures of the server's page for the documentation: docs/images/page-*.jpg, at 1440 and 360 pixels.

    scripts/screenshots.py [--cloob build/cloob] [--out docs/images]

cloob synth draws the images, cloob train makes a small model of them (some minutes), cloob serve shows both, and a headless
Chromium takes the pictures. Needs chromium, chromedriver and selenium (`make screenshots` installs Debian's packages). The
server and the browser are those of tests/serve/page_check.py."""
import argparse
import base64
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/serve"))
import page_check  # noqa: E402

LARGEST = 200_000  # bytes of a picture
EPOCHS = 16  # enough to find colours and shapes


def search(p, words):
    p.go("/?q=" + words.replace(" ", "+"))
    p.wait(lambda: p.all(".cell .cap b"), "results")


def classify(p, _):
    p.go("/?tab=classify")
    p.wait(lambda: p.one("#view-classify").is_displayed(), "the view")
    p.one("#classify-some").click()
    p.wait(lambda: p.all("#classify-cards .bar"), "bars")


def documented(p, _):
    p.go("/docs#v1_search")
    p.wait(lambda: len(p.all("#endpoints details")) > 20 and p.one("#v1_search").get_attribute("open"), "endpoints")


# name, what it shows, width, height
SHOTS = [("page-search", search, 1440, 900), ("page-search-narrow", search, 360, 740), ("page-classify", classify, 1440, 900),
         ("page-docs", documented, 1440, 900), ("page-docs-narrow", documented, 360, 740)]


def take(p, out, name):
    """A JPEG of at most LARGEST bytes."""
    for quality in (85, 70, 55, 40):
        shot = p.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "jpeg", "quality": quality})
        data = base64.b64decode(shot["data"])
        if len(data) <= LARGEST:
            break
    else:
        raise page_check.Failed(f"{name}: {len(data)} bytes at quality {quality}")
    (out / (name + ".jpg")).write_bytes(data)
    print(f"{name}.jpg: {len(data)} bytes at quality {quality}", flush=True)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--cloob", default=str(ROOT / "build/cloob"))
    a.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/images")
    args = a.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    jobs, p, case = [], None, page_check.Case()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            url, _ = page_check.serve(args.cloob, pathlib.Path(scratch), case, jobs, EPOCHS)
            p = page_check.Page(url, pathlib.Path(scratch))
            for name, show, width, height in SHOTS:
                p.start(width, height)
                show(p, case.words)
                p.settle()
                p.audit(name)
                take(p, args.out, name)
        finally:
            if p and p.driver:
                p.driver.quit()
            for job in jobs:
                job.terminate()
                job.wait()


if __name__ == "__main__":
    try:
        main()
    except page_check.Failed as e:
        sys.exit(f"screenshots: {e}")
