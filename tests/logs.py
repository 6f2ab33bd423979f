"""Files as other people's loggers write them."""

import json
import struct

import pytest

HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)


def wandb_file(rows):
    """The bytes of a .wandb file: a header, then each record as one piece of a LevelDB log, here without checksums."""
    return wandb_texts([{key: json.dumps(value) for key, value in row.items()} for row in rows])


def wandb_texts(rows):
    """The same of values that are JSON already, or should be."""
    proto = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    content = HEADER
    for row in rows:
        record = proto.Record()
        for key, text in row.items():
            record.history.item.add(nested_key=[key], value_json=text)
        data = record.SerializeToString()
        content += struct.pack("<IHB", 0, len(data), 1) + data
    return content
