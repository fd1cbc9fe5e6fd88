"""What the bytes of a member mean: messages, signed records, manifests, codecs, hashes.

Written from gossip/WIRE.md ("Bodies" and what follows it) and averaging/WIRE.md ("What all rounds
share"). Message bodies are msgpack maps with small integer keys; here they are dicts with names.
"""
import struct
from types import SimpleNamespace

import msgpack
import numpy
from cryptography.exceptions import InvalidSignature

from transport import Refused, blake2b, verify

OFFER, MEAN, STATE = 0, 1, 2  # kinds of DATA
CHUNK = 32768  # values

# "Bodies": number and keys of what this member sends or reads. Words in brackets are optional.
TABLE = """
1 HELLO_OK
2 ERROR 0 code 1 text
3 GOAWAY 0 reason 1 retry_ms
4 REKEY 0 epoch 1 key
5 REKEY_ACK 0 epoch 1 key
6 FIN
16 PING 0 seq 2 records
17 ACK 0 seq 2 records
18 PING_REQ 0 seq 1 target
19 NACK 0 seq
20 GOSSIP 0 records
21 SYNC_REQ 0 digest 1 page
22 SYNC 0 page 1 records 2 pages
25 PROGRESS 0 lineage 1 samples 2 step 3 round 4 is_serving 5 is_done [6 busy] [7 left_ms]
   8 is_settled [9 measured_samples] [10 measured]
32 DIALBACK_REQ 0 nonce
33 DIALBACK 0 nonce 1 code
40 OFFER 0 round 1 step 2 schema 3 codec 4 chunks 5 alpha 6 deadline_ms 7 lineage
41 ACCEPT 0 round 1 alpha 2 credit
42 REJECT 0 round 1 code 2 retry_ms
43 READY 0 round 1 squared
44 COMMIT 0 round
45 ABORT 0 round 1 code
46 OUTCOME_REQ 0 round
47 OUTCOME 0 round 1 state
56 FORM 0 round 1 ballot 2 members 3 schema 4 lineage 5 codec 6 chunks 7 deadline_ms
57 JOIN 0 round 1 ballot 2 samples [3 rate] [4 only_direct]
58 START 0 round 1 ballot 2 members 3 schema 4 lineage 5 codec 6 chunks 7 deadline_ms
   [10 schedule] [11 statements]
59 MEAN 0 stream 1 part 2 contributors 3 hash [4 rate]
80 CREDIT 0 stream 1 chunks [2 start]
81 CANCEL 0 stream 1 code
82 OPEN_REQ 0 count
96 STATE_REQ 0 want 1 round 2 base
97 STATE_MANIFEST 0 step 1 schema 2 sections 3 root 4 lease_ms 5 pages 6 proof 7 lease 8 samples
   9 round 10 lineage 11 buckets 12 moments 13 rule 14 updates
98 MANIFEST_REQ 0 page 1 lease
99 MANIFEST_PAGE 0 page 1 hashes 2 lease
100 BUCKET_REQ 0 first 2 count 3 lease
101 STATE_DENY 0 code 1 retry_ms
104 STATE_DONE 0 lease
112 STATUS_REQ
113 STATUS 0 text
"""
FLOATS = {"alpha"}


def read_table():
    by_name, by_number = {}, {}
    for row in TABLE.replace("\n   ", " ").replace("[", "").replace("]", "").split("\n"):
        words = row.split()
        if words:
            keys = dict(zip(words[3::2], map(int, words[2::2])))
            by_name[words[1]] = (int(words[0]), keys)
            by_number[int(words[0])] = (words[1], {key: name for name, key in keys.items()})
    return by_name, by_number


BY_NAME, BY_NUMBER = read_table()


def pack(body):
    return msgpack.packb(body, use_bin_type=True, use_single_float=True)


def encode(name, **values):
    """Inner header and body."""
    number, keys = BY_NAME[name]
    body = {keys[key]: float(value) if key in FLOATS else value for key, value in values.items()}
    return struct.pack("<BBHIII", number, 0, 0, 0, 0, 0) + pack(body)


def decode(inner):
    """A message as an object: `name`, and what is in it. DATA: `name`, its header, `body`; of a
    round the header's `stream` and `offset` are one number."""
    number, flags, stream, arg, offset, after = struct.unpack("<BBHIII", inner[:16])
    if number == 128:
        return SimpleNamespace(name="DATA", kind=flags, stream=stream | offset << 16, chunk=arg,
                               after=after, body=inner[16:])
    name, keys = BY_NUMBER.get(number, (f"type {number}", {}))
    body = msgpack.unpackb(inner[16:], raw=False, strict_map_key=False)
    return SimpleNamespace(name=name, **{keys[key]: body[key] for key in body if key in keys})


# ---- "Signed things"

HELLO = dict(public_key=0, signature=1, boot=2, incarnation=3, features=4, suites=5, port=8,
             observed=9, schema=10, model=11, role=12, method=13,
             dialback=14)


def hello(identity, run_id, static_key, **more):
    values = dict(public_key=identity.public, boot=identity.boot, incarnation=1, features=0,
                  port=0, observed="", dialback=0, **more)
    values["signature"] = identity.sign("static/1", run_id + static_key + identity.boot)
    return pack({HELLO[key]: values[key] for key in values})


def open_hello(payload, run_id, static_key):
    body = msgpack.unpackb(payload, raw=False, strict_map_key=False)
    said = SimpleNamespace(**{name: body[key] for name, key in HELLO.items()})
    try:
        verify(said.public_key, "static/1", run_id + static_key + said.boot, said.signature)
    except InvalidSignature as error:
        raise Refused("the hello is not signed by its key") from error
    said.id = blake2b(said.public_key)[:20]
    return said


def member_record(identity, run_id, incarnation, has_left=False):
    """One that cannot be dialled: no address, reachability 2."""
    body = pack({0: identity.public, 1: identity.boot, 2: incarnation, 3: 0, 4: has_left, 5: [],
                 6: 2})
    return identity.sign("record/1", run_id + body) + body


def manifest_is_signed(manifest, run_id, by):
    sections = [struct.unpack("<BQ", manifest.sections[i:i + 9])
                for i in range(0, len(manifest.sections), 9)]
    claim = run_id + struct.pack("<IQQQQ", manifest.lease, manifest.step, manifest.samples,
                                 manifest.round, manifest.updates)
    claim += manifest.schema + manifest.lineage + manifest.moments + manifest.rule + manifest.root
    claim += struct.pack("<IIII", manifest.lease_ms, manifest.pages, manifest.buckets,
                         len(sections)) + manifest.sections
    try:
        verify(manifest.proof[:32], "manifest/2", claim, manifest.proof[32:])
    except InvalidSignature:
        return False
    return blake2b(manifest.proof[:32])[:20] == by


# ---- "Bytes of a round"

def hash_wide(data):
    leaves = [b"".join(data[at:at + 128] for at in range(lane * 128, len(data), 1024))
              for lane in range(8)]
    return blake2b(b"".join(map(blake2b, leaves)) + struct.pack("<Q", len(data)))


def stream_of(round_key):
    """Section "Streams"."""
    return int.from_bytes(blake2b(round_key)[:6], "little")


def chunks_of(values):
    return [values[at:at + CHUNK] for at in range(0, len(values), CHUNK)]


def to_bytes(codec, values):
    """A chunk as it travels."""
    values = numpy.asarray(values, "<f4")
    if codec == "f32":
        return values.tobytes()
    if codec == "f16":
        return numpy.clip(values, -65504, 65504).astype("<f2").tobytes()
    bits = values.view("<u4")
    if codec == "bf16":
        magnitude = bits & 0x7fffffff
        rounded = (magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16  # to nearest even
        return (bits >> 16 & 0x8000 | numpy.minimum(rounded, 0x7f7f)).astype("<u2").tobytes()
    if codec == "int8":
        scales, data = b"", b""
        for at in range(0, len(values), 256):
            block = values[at:at + 256]
            scale = numpy.float32(abs(block).max()) / numpy.float32(127)
            if scale < 2 ** -126:
                scales, data = scales + bytes(4), data + bytes(len(block))
                continue
            scale = (scale.view("<u4") & ~numpy.uint32(0x7f)).view("<f4")
            scales += scale.tobytes()
            data += numpy.rint(block / scale).astype("i1").tobytes()
        return scales + data
    raise Refused(f"codec {codec} is not spoken here")


def of_bytes(codec, data):
    """What these bytes say; Refused if it is not finite."""
    if codec == "int8":
        blocks = -(-len(data) // 260)
        scales = numpy.frombuffer(data[:4 * blocks], "<f4")
        values = numpy.frombuffer(data[4 * blocks:], "i1").astype("<f4")
        values *= numpy.repeat(scales, 256)[:len(values)]
    elif codec == "bf16":
        values = (numpy.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    else:
        values = numpy.frombuffer(data, {"f32": "<f4", "f16": "<f2"}[codec]).astype("<f4")
    if not numpy.isfinite(values).all():
        raise Refused("values that are not finite")
    return values


def values_of(data):
    """Of a bucket."""
    return of_bytes("f32", data)
