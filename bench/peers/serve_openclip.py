"""open_clip behind FastAPI with a batcher: what people write for themselves, for load.c and load.py to measure.

usage: python bench/peers/serve_openclip.py PORT fp32|bf16 [WEIGHTS.pt|.safetensors]    needs open_clip_torch, fastapi, uvicorn

A request's texts and images go into a queue; one thread takes what waits, up to 32, and embeds it at once. Images are decoded
by a pool of two threads. Answers have OpenAI's form. Without a file the weights are random."""
import asyncio
import base64
import io
import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import open_clip
import torch
import uvicorn
from fastapi import FastAPI, Request
from PIL import Image

MAX_BATCH = 32
port, precision = int(sys.argv[1]), sys.argv[2]
dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
model, _, view = open_clip.create_model_and_transforms("ViT-B-32-quickgelu", pretrained=sys.argv[3] if len(sys.argv) > 3 else None)
model = model.eval().to(dtype)
tokenizer = open_clip.get_tokenizer("ViT-B-32-quickgelu")
waiting = {"text": queue.Queue(), "image": queue.Queue()}
some = threading.Semaphore(0)
decoders = ThreadPoolExecutor(2)
app = FastAPI()


def take(kind):
    batch = []
    while len(batch) < MAX_BATCH:
        try:
            batch.append(waiting[kind].get_nowait())
        except queue.Empty:
            break
    return batch


def embed():
    while True:
        some.acquire()
        for kind, encode in (("text", model.encode_text), ("image", model.encode_image)):
            batch = take(kind)
            if not batch:
                continue
            with torch.inference_mode():
                x = torch.stack([b[0] for b in batch])
                rows = encode(x if kind == "text" else x.to(dtype), normalize=True).float().tolist()
            for (_, loop, future), row in zip(batch, rows):
                loop.call_soon_threadsafe(future.set_result, row)


async def one(kind, x):
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    waiting[kind].put((x, loop, future))
    some.release()
    return await future


def decode(url):
    return view(Image.open(io.BytesIO(base64.b64decode(url.split(",", 1)[1]))).convert("RGB"))


@app.post("/v1/embeddings")
async def embeddings(request: Request):
    body = await request.json()
    inputs = body["input"] if isinstance(body["input"], list) else [body["input"]]
    loop, jobs = asyncio.get_running_loop(), []
    for i in inputs:
        if i.startswith("data:image/"):
            jobs.append(one("image", await loop.run_in_executor(decoders, decode, i)))
        else:
            jobs.append(one("text", tokenizer([i])[0]))
    rows = await asyncio.gather(*jobs)
    data = [{"object": "embedding", "index": k, "embedding": row} for k, row in enumerate(rows)]
    return {"object": "list", "data": data, "model": "ViT-B-32", "usage": {"prompt_tokens": 0, "total_tokens": 0}}


torch.set_num_threads(2)
threading.Thread(target=embed, daemon=True).start()
uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
