"""Batches of records that no producer would send: they are sent raw, so the broker takes what no client would make.

`batch` lays a batch out (format v2), `compressed` compresses a body, `produce` sends batches. For tests of hostile topics.
"""

from __future__ import annotations

import struct
import zlib

import cramjam
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.util import calc_crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
NOW_MS = 1_700_000_000_000


def varint(number):
    """A zigzag number, as in records."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(0x80 | (number & 0x7F))
        number >>= 7
    out.append(number)
    return bytes(out)


def sized(value):
    return varint(-1) if value is None else varint(len(value)) + value


def record(delta, value, *, key=None, headers=(), header_count=None):
    """One record. `header_count` is for a false count."""
    count = len(headers) if header_count is None else header_count
    body = b"\0" + varint(0) + varint(delta) + sized(key) + sized(value) + varint(count)
    body += b"".join(sized(name) + sized(said) for name, said in headers)
    return varint(len(body)) + body


def compressed(body, codec):
    """The body as the usual producers compress it."""
    if codec == "gzip":
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        return packer.compress(body) + packer.flush()
    if codec == "snappy":
        return xerial(body)
    if codec == "lz4":
        packer = cramjam.lz4.Compressor(level=9, content_checksum=False, block_linked=False)
        packer.compress(body)
        return bytes(packer.finish())
    return bytes(cramjam.zstd.compress(body)) if codec == "zstd" else bytes(body)


def xerial(body, block=32 * 1024):
    """Snappy as Java frames it."""
    cuts = [bytes(cramjam.snappy.compress_raw(body[at : at + block])) for at in range(0, len(body), block)]
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(c)) + c for c in cuts)


def batch(body, *, count=1, codec=0, base=0, last=None, attributes=0):
    """A batch. `body` is as stored, `last` the last record's place in the batch, `codec` a name or a number."""
    last = count - 1 if last is None else last
    attributes |= CODECS.get(codec, codec)
    said = struct.pack(">hiqqqhii", attributes, last, NOW_MS, NOW_MS, -1, -1, -1, count) + bytes(body)
    return struct.pack(">qiibI", base, len(said) + 9, -1, 2, calc_crc32c(said)) + said


def of(records, codec="none", **named):
    """A batch of these records."""
    return batch(compressed(b"".join(records), codec), count=len(records), codec=codec, **named)


async def produce(servers, topic, batches, partition=0):
    """Sends each batch in a request of its own. Returns the error code of each; 0 means that the broker took it."""
    client = AIOKafkaClient(bootstrap_servers=servers)
    await client.bootstrap()
    try:
        await client._wait_on_metadata(topic)
        await client.force_metadata_update()
        node = next(iter(client.cluster.brokers())).nodeId
        codes = []
        for each in batches:
            request = ProduceRequest(
                transactional_id=None, required_acks=1, timeout=30_000, topics=[(topic, [(partition, each)])]
            )
            answer = await client.send(node, request)
            codes.append(answer.topics[0][1][0][1])
        return codes
    finally:
        await client.close()
