#!/usr/bin/env python3
"""Makes the small torch files that tests/io/test_torchfile.c reads: tests/ref/make/make_torch_refs.py tests/ref

Needs torch. Values are counts, so that the test can name them; each file holds the same state dict."""
import collections, sys, warnings, zipfile
import torch
import torch.nn as nn

warnings.filterwarnings("ignore")
out = sys.argv[1]
base = torch.arange(10.0)
state = collections.OrderedDict(
    plain=torch.arange(6.0).reshape(2, 3), turned=torch.arange(6.0).reshape(2, 3).t(), scalar=torch.tensor(7),
    half=torch.arange(4.0).half(), brain=torch.arange(2.0).bfloat16(), double=torch.arange(3.0).double(),
    small=torch.tensor([1, -2], dtype=torch.int8), yes=torch.tensor([True, False]), empty=torch.zeros(0, 3),
    front=base[1:4], back=base[3:], parameter=nn.Parameter(torch.ones(2)))
state._metadata = collections.OrderedDict({"": {"version": 1}})
saved = {"epoch": 3, "name": "run", "state_dict": state, "best": 0.5, "size": torch.Size([1, 2]), "type": torch.float16,
         "where": torch.device("cpu"), "betas": (0.9, 0.999), "note": None}
torch.save(saved, f"{out}/torch_zip.pt")
torch.save(saved, f"{out}/torch_stream.pt", _use_new_zipfile_serialization=False)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))
        self.sizes = [1, 2]

    def forward(self, x):
        return x @ self.weight.t()


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Inner())
        self.register_buffer("count", torch.tensor(7))
        self.scale, self.names = 1.5, {"a": 1}

    def forward(self, x):
        return self.blocks(x) * self.scale


torch.jit.script(Outer()).save(f"{out}/torch_script.pt")
# The debug members quote this script's path; a file for a repository goes without them.
with zipfile.ZipFile(f"{out}/torch_script.pt") as z:
    members = [(i, z.read(i)) for i in z.infolist() if not i.filename.endswith(".debug_pkl")]
with zipfile.ZipFile(f"{out}/torch_script.pt", "w") as z:
    for info, data in members:
        z.writestr(info, data, info.compress_type)
torch.jit.load(f"{out}/torch_script.pt")
