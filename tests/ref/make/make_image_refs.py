#!/usr/bin/env python3
"""Makes tests/ref/images: small images of many kinds, drawn here, and what Pillow makes of them.

    python3 tests/ref/make/make_image_refs.py tests/ref/images tests/fuzz/corpus/image     (Pillow, NumPy, torchvision)

The second folder gets smaller ones still, where a fuzzer may begin. index.json lists the cases; expected.bin holds their pixels, RGB, one after the other. Resizes are made in two steps,
in the order of Pillow 13, which older versions do not have.
"""
import io, json, os, struct, sys, zlib

import numpy as np
from PIL import Image, ImageEnhance
from torchvision.transforms import functional as F

out = sys.argv[1]
os.makedirs(out, exist_ok=True)
cases, blob = [], bytearray()


def scene(width, height, channels, seed):
    """Smooth colours, a hard edge and a little noise, so that every code path has something to do."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    planes = [128 + 120 * np.sin(7 * x * (c + 1) + 5 * y * (3 - c) + seed) for c in range(channels)]
    a = np.stack(planes, -1)
    a[height // 3 : height // 2 + 1, width // 4 : width // 2 + 1] = 255 - a[height // 3 : height // 2 + 1, width // 4 : width // 2 + 1]
    return np.clip(a + rng.normal(0, 12, a.shape), 0, 255).astype(np.uint8)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pack_rows(samples, bits):
    """(rows, samples per row) of integers to filter byte + packed samples."""
    if bits == 16:
        rows = samples.astype(">u2").view(np.uint8).reshape(samples.shape[0], -1)
    elif bits == 8:
        rows = samples.astype(np.uint8)
    else:
        one = np.unpackbits(samples.astype(np.uint8)[..., None], axis=-1)[..., 8 - bits :]
        rows = np.packbits(one.reshape(samples.shape[0], -1), axis=1)
    return b"".join(b"\0" + r.tobytes() for r in rows)


def png(name, samples, bits, colour, interlaced=False, extra=b""):
    """A PNG written here, for what Pillow cannot write. samples: (height, width, channels)."""
    h, w, _ = samples.shape
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    raw = b""
    for t, l, dy, dx in passes if interlaced else [(0, 0, 1, 1)]:
        part = samples[t::dy, l::dx]
        if part.size:
            raw += pack_rows(part.reshape(part.shape[0], -1), bits)
    head = struct.pack(">IIBBBBB", w, h, bits, colour, 0, 0, int(interlaced))
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
    open(os.path.join(out, name), "wb").write(data)
    return name


def save(name, im, **settings):
    im.save(os.path.join(out, name), **settings)
    return name


def resize(im, size, filt):
    if im.size == size:
        return im
    if im.mode in ("1", "P"):
        return im.resize(size, Image.NEAREST)
    native = im.mode
    if native in ("LA", "RGBA"):
        im = im.convert({"LA": "La", "RGBA": "RGBa"}[native])
    columns, rows = im.width - size[0], im.height - size[1]
    down_first = rows > 0 and rows > 2 * columns
    im = im.resize((im.width, size[1]) if down_first else (size[0], im.height), filt).resize(size, filt)
    return im.convert(native)


def add(file, what, pixels, **settings):
    a = np.asarray(pixels)
    assert a.dtype == np.uint8 and a.shape[2] == 3
    cases.append(dict(file=file, what=what, width=a.shape[1], height=a.shape[0], offset=len(blob), **settings))
    blob.extend(a.tobytes())


def load(file):
    im = Image.open(os.path.join(out, file))
    im.load()
    return im


def add_all(file, views=True):
    im = load(file)
    add(file, "rgb", im.convert("RGB"))
    if not views:
        return
    for size, filt, name in ((14, Image.BICUBIC, "bicubic"), (31, Image.BILINEAR, "bilinear")):
        w, h = im.size
        full = (size, int(size * h / w)) if w <= h else (int(size * w / h), size)
        r = resize(im, full, filt)
        t, l = int(round((full[1] - size) / 2)), int(round((full[0] - size) / 2))
        add(file, "eval", r.crop((l, t, l + size, t + size)).convert("RGB"), size=size, filter=name, mode="shortest")
    w, h = im.size
    t, l, ch, cw = h // 5, w // 6, max(1, h * 3 // 5), max(1, w * 2 // 3)
    add(file, "crop", resize(im.crop((l, t, l + cw, t + ch)), (18, 18), Image.BICUBIC).convert("RGB"),
        box=[t, l, ch, cw], size=18, filter="bicubic")


def add_modes(file):
    im = load(file).convert("RGB")
    w, h = im.size
    add(file, "eval", resize(im, (22, 22), Image.BICUBIC), size=22, filter="bicubic", mode="squash")
    ratio = max(h / 22, w / 22)
    r = resize(im, (max(1, round(w / ratio)), max(1, round(h / ratio))), Image.BICUBIC)
    pad = Image.new("RGB", (22, 22))
    pad.paste(r, ((22 - r.size[0]) // 2, (22 - r.size[1]) // 2))
    add(file, "eval", pad, size=22, filter="bicubic", mode="longest")


def add_padded(file):
    """open_clip's resize_mode longest, which pads before it converts to RGB."""
    im = load(file)
    w, h = im.size
    ratio = max(h / 22, w / 22)
    r = resize(im, (max(1, round(w / ratio)), max(1, round(h / ratio))), Image.BICUBIC)
    for fill in (0, 1, 5, 127):
        x, y = 22 - r.size[0], 22 - r.size[1]
        add(file, "eval", F.pad(r, [x // 2, y // 2, (x + 1) // 2, (y + 1) // 2], fill=fill).convert("RGB"), size=22, filter="bicubic", mode="longest", fill=fill)


def add_colours(file):
    im = load(file).convert("RGB")
    for factor in (0.37, 1.6):
        add(file, "brightness", ImageEnhance.Brightness(im).enhance(factor), factor=factor)
        add(file, "contrast", ImageEnhance.Contrast(im).enhance(factor), factor=factor)
        add(file, "saturation", ImageEnhance.Color(im).enhance(factor), factor=factor)
    for factor in (-0.13, 0.5):
        add(file, "hue", F.adjust_hue(im, factor), factor=factor)
    add(file, "gray", F.to_grayscale(im, num_output_channels=3), factor=0)


def jpegs():
    rgb = Image.fromarray(scene(45, 33, 3, 1))
    for s, name in ((0, "444"), (1, "422"), (2, "420")):
        add_all(save(f"rgb_{name}.jpg", rgb, quality=85, subsampling=s))
    add_all(save("rgb_411.jpg", rgb, quality=90, subsampling="4:1:1"))
    add_all(save("progressive.jpg", rgb, quality=80, progressive=True))
    add_all(save("restarts.jpg", rgb, quality=80, restart_marker_blocks=1))
    add_all(save("restarts_rows.jpg", rgb, quality=80, restart_marker_rows=1))
    add_all(save("optimized_q100.jpg", rgb, quality=100, optimize=True))
    add_all(save("coarse_q5.jpg", rgb, quality=5))
    add_all(save("gray.jpg", Image.fromarray(scene(30, 41, 1, 2)[..., 0]), quality=90))
    add_all(save("cmyk.jpg", Image.fromarray(scene(26, 31, 4, 3), "CMYK"), quality=90))
    exif = Image.Exif()
    exif[0x0112] = 6
    add_all(save("exif.jpg", Image.fromarray(scene(23, 37, 3, 4)), quality=90, exif=exif))
    bad = bytearray(open(os.path.join(out, "exif.jpg"), "rb").read())
    at = bad.index(b"Exif")
    bad[at + 6 : at + 20] = bytes(range(200, 214))  # the metadata says nonsense; the pixels are whole
    open(os.path.join(out, "bad_exif.jpg"), "wb").write(bad)
    add_all("bad_exif.jpg", views=False)
    add_all(save("one.jpg", Image.fromarray(scene(1, 1, 3, 5)), quality=90))
    # large enough that a window of it can be decoded alone
    save("tall.jpg", Image.fromarray(scene(70, 210, 3, 10)), quality=60)
    save("wide.jpg", Image.fromarray(scene(230, 75, 3, 11)), quality=60, subsampling=1)
    add_all(save("column.jpg", Image.fromarray(scene(3, 70, 3, 6)), quality=90))
    add_all(save("row.jpg", Image.fromarray(scene(90, 2, 3, 7)), quality=90))


def pngs():
    s = scene(29, 22, 4, 8)
    add_all(save("rgb.png", Image.fromarray(s[..., :3])))
    add_all(save("rgba.png", Image.fromarray(s, "RGBA")))
    add_all(save("gray.png", Image.fromarray(s[..., 0])))
    add_all(save("gray_alpha.png", Image.fromarray(np.ascontiguousarray(s[..., :2]), "LA")))
    add_all(save("palette.png", Image.fromarray(s[..., :3]).quantize(40)))
    plte = lambda n: chunk(b"PLTE", bytes((37 * i + 90 * c) % 256 for i in range(n) for c in range(3)))
    for bits in (1, 2, 4):
        small = s[..., :1] >> (8 - bits)
        add_all(png(f"palette{bits}.png", small, bits, 3, extra=plte(2**bits)))
        add_all(png(f"gray{bits}.png", small, bits, 0))
    add_all(png("palette_trns.png", s[..., :1] >> 4, 8, 3, extra=plte(16) + chunk(b"tRNS", bytes(range(0, 160, 10)))))
    add_all(png("palette_short.png", s[..., :1] >> 4, 8, 3, extra=plte(9)))
    add_all(png("rgb_trns.png", s[..., :3], 8, 2, extra=chunk(b"tRNS", struct.pack(">HHH", *map(int, s[0, 0, :3])))))
    add_all(png("bad_icc.png", s[..., :3], 8, 2, extra=chunk(b"iCCP", b"name\0\0not a stream of zlib")), views=False)
    add_all(png("interlaced.png", s[..., :3], 8, 2, interlaced=True))
    add_all(png("interlaced_gray_alpha.png", s[..., :2], 8, 4, interlaced=True))
    add_all(png("interlaced4.png", s[..., :1] >> 4, 4, 0, interlaced=True))
    wide = s.astype(np.uint16) * 257
    wide[1::2] -= wide[1::2] % 251
    add_all(png("rgb16.png", wide[..., :3], 16, 2))
    add_all(png("rgba16.png", wide, 16, 6))
    add_all(png("gray_alpha16.png", wide[..., :2], 16, 4))
    add_all(png("gray16.png", s[..., :1].astype(np.uint16) * 3 // 2, 16, 0), views=False)
    add_all(save("one.png", Image.fromarray(s[:1, :1, :3])))
    add_all(save("tall.png", Image.fromarray(scene(16, 50, 4, 13), "RGBA")))  # resized down, then across


def webps():
    s = scene(38, 27, 4, 9)
    add_all(save("lossy.webp", Image.fromarray(s[..., :3]), quality=80))
    add_all(save("lossless.webp", Image.fromarray(s[..., :3]), lossless=True))
    add_all(save("lossy_alpha.webp", Image.fromarray(s, "RGBA"), quality=80))
    frames = [Image.fromarray(scene(38, 27, 4, seed), "RGBA") for seed in (10, 11)]
    add_all(save("animated_alpha.webp", frames[0], save_all=True, append_images=frames[1:], quality=70))
    frames = [Image.fromarray(scene(24, 24, 3, seed)) for seed in (12, 13)]
    add_all(save("animated.webp", frames[0], save_all=True, append_images=frames[1:], lossless=True))
    add_all(save("lossless_alpha.webp", Image.fromarray(s, "RGBA"), lossless=True))


def corpus(folder):
    global out
    kept, out = out, folder
    os.makedirs(folder, exist_ok=True)
    s = scene(17, 11, 4, 12)
    rgb = Image.fromarray(s[..., :3])
    save("420.jpg", rgb, quality=30)
    save("422_restarts.jpg", rgb, quality=30, subsampling=1, restart_marker_blocks=1)
    save("progressive.jpg", rgb, quality=30, progressive=True)
    save("gray.jpg", rgb.convert("L"), quality=30)
    save("cmyk.jpg", Image.fromarray(s, "CMYK"), quality=30)
    save("rgba.png", Image.fromarray(s[:5, :7], "RGBA"))
    png("interlaced16.png", s[:5, :7, :3].astype(np.uint16) * 257, 16, 2, interlaced=True)
    png("palette4.png", s[:5, :7, :1] >> 4, 4, 3, extra=chunk(b"PLTE", bytes(range(48))))
    png("gray16.png", s[:5, :7, :1].astype(np.uint16), 16, 0)
    save("lossy.webp", rgb, quality=30)
    save("lossy_alpha.webp", Image.fromarray(s, "RGBA"), quality=30)
    save("lossless.webp", rgb, lossless=True)
    out = kept


jpegs(), pngs(), webps()
if len(sys.argv) > 2:
    corpus(sys.argv[2])
add_modes("rgb_444.jpg"), add_modes("exif.jpg"), add_modes("row.jpg")
add_colours("rgb.png")
s = scene(29, 22, 3, 8)
add_all(save("palette.gif", Image.fromarray(s).quantize(40)))
add_all(save("palette.bmp", Image.fromarray(s).quantize(40)))
add_all(save("gray.bmp", Image.fromarray(s[..., 0])))
add_all(save("black_white.bmp", Image.fromarray(s[..., 0] > 128)))
ramp = Image.fromarray(s[..., 0] >> 2).convert("P")
ramp.putpalette([i for i in range(64) for _ in range(3)])
add_all(save("gray_ramp.png", ramp))
ramp = bytearray(open(os.path.join(out, "palette.gif"), "rb").read())
ramp[13 : 13 + 192] = [i for i in range(64) for _ in range(3)]
open(os.path.join(out, "gray_ramp.gif"), "wb").write(ramp)
add_all("gray_ramp.gif")
for name in ("palette.png", "palette1.png", "palette_trns.png", "gray1.png", "gray4.png", "cmyk.jpg", "rgba.png", "palette.gif", "palette.bmp", "gray.bmp", "black_white.bmp", "gray_ramp.gif"):
    add_padded(name)
with open(os.path.join(out, "expected.bin"), "wb") as f:
    f.write(blob)
with open(os.path.join(out, "index.json"), "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
print(len(cases), "cases,", len(blob), "bytes")
