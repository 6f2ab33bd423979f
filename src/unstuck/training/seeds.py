"""Random streams named by what they seed, all derived from one `seed`."""

import zlib

import numpy as np
import torch


def stream(seed: int, name: str, device: str = "cpu") -> torch.Generator:
    """The generator of the stream `name` ("target", "init", "data", ...) of run `seed`; each device draws otherwise."""
    return torch.Generator(device).manual_seed(stream_seed(seed, name))


def stream_seed(seed: int, name: str) -> int:
    """The number that seeds it."""
    state = np.random.SeedSequence([seed, zlib.crc32(name.encode())]).generate_state(2, np.uint32)
    return int(state[0]) << 32 | int(state[1])
