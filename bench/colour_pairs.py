"""Pairs and class folders of coloured images, with nothing but Python's own library: colour_pairs.py DIR COUNT [SIZE]

DIR/train.tsv and DIR/val.tsv (filepath, title), DIR/images/*.png, DIR/classes/COLOUR/*.png."""
import os
import random
import struct
import sys
import zlib

COLOURS = {"red": (210, 40, 40), "green": (40, 180, 60), "blue": (50, 70, 220), "yellow": (230, 210, 40),
           "purple": (150, 50, 180), "orange": (240, 140, 30), "grey": (128, 128, 128), "white": (240, 240, 240)}


def png(path, colour, size, rng):
    rows = b"".join(b"\0" + bytes(max(0, min(255, c + rng.randint(-30, 30))) for _ in range(size) for c in colour) for _ in range(size))
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)) +
                chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def main(folder, count, size):
    rng = random.Random(1)
    os.makedirs(folder + "/images")
    with open(folder + "/train.tsv", "w") as train, open(folder + "/val.tsv", "w") as val:
        for f in train, val:
            f.write("filepath\ttitle\n")
        for i in range(count):
            name = rng.choice(list(COLOURS))
            png(f"{folder}/images/{i}.png", COLOURS[name], size, rng)
            (val if i % 8 == 0 else train).write(f"{folder}/images/{i}.png\ta {rng.choice(['image', 'photo', 'wall'])} that is {name}\n")
    for name, colour in COLOURS.items():
        os.makedirs(f"{folder}/classes/{name}")
        for i in range(4):
            png(f"{folder}/classes/{name}/{i}.png", colour, size, rng)


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 64)
