"""Random streams named by what they seed, all derived from one `seed`."""

import zlib

import numpy as np
import torch


def stream(seed: int, name: str) -> torch.Generator:
    """The generator of the stream `name` ("target", "init", "data", ...) of run `seed`."""
    state = np.random.SeedSequence([seed, zlib.crc32(name.encode())]).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 32 | int(state[1]))
