"""Wait for what another process is about to do."""

import time


def eventually(true, seconds=60.0):
    """Whether `true()` came to hold; it is asked again and again until it does or time is up."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
