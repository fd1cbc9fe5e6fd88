"""Connections of a member: handshake, records, bulk connections.

Written from gossip/WIRE.md, whose sections are named beside what follows them. Nothing of the
C code is used: ciphers and curves come from python3-cryptography (OpenSSL), BLAKE2b and SHA-512
from Python itself.
"""
import hashlib
import hmac
import os
import socket
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

MAGIC, MAJOR = b"GRPV", 1
CHACHA20, AES256 = 1, 2  # bits of `suites`
INNER_MAX = 1024 * 1024 + 16


class Refused(Exception):
    """The other side closed the connection, or broke the protocol."""


def blake2b(data, size=32, key=b""):
    return hashlib.blake2b(data, digest_size=size, key=key).digest()


def kdf(key, label, context=b""):
    """Section "Hashes and keys": KDF."""
    return blake2b(label.encode() + context, key=key)


def public_bytes(key):
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


class Identity:
    """Section "Hashes and keys": an Ed25519 key, and the id that is made of it."""

    def __init__(self):
        self.secret = Ed25519PrivateKey.generate()
        self.public = public_bytes(self.secret)
        self.id = blake2b(self.public)[:20]
        self.boot = os.urandom(16)

    def sign(self, label, data):
        return self.secret.sign(label.encode() + b"\0" + data)


def verify(public, label, data, signature):
    """Raises InvalidSignature."""
    Ed25519PublicKey.from_public_bytes(public).verify(signature, label.encode() + b"\0" + data)


class Swarm:
    """What keeps swarms apart: the run id, and the secret."""

    def __init__(self, name, key_file=None):
        self.run_id = blake2b(b"run/1" + name.encode())
        if key_file is None:
            self.secret = blake2b(b"public/1" + self.run_id)
            return
        with open(key_file) as file:
            word, digits = file.read().split()
        assert word == "grapevine-swarm-key-1"
        self.secret = bytes.fromhex(digits)


class Noise:
    """The initiator's side of Noise_XXpsk3_25519_ChaChaPoly_SHA512 (Noise, revision 34)."""

    def __init__(self, prologue, psk):
        name = b"Noise_XXpsk3_25519_ChaChaPoly_SHA512"
        self.chaining_key = self.hash = name.ljust(64, b"\0")
        self.psk = psk
        self.key, self.nonce = None, 0
        self.e, self.s = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        self.mix_hash(prologue)

    def mix_hash(self, data):
        self.hash = hashlib.sha512(self.hash + data).digest()

    def hkdf(self, data, count):
        temp = hmac.digest(self.chaining_key, data, "sha512")
        outputs, last = [], b""
        for number in range(1, count + 1):
            last = hmac.digest(temp, last + bytes([number]), "sha512")
            outputs.append(last)
        return outputs

    def mix_key(self, data):
        self.chaining_key, key = self.hkdf(data, 2)
        self.key, self.nonce = key[:32], 0

    def mix_dh(self, ours, theirs):
        self.mix_key(ours.exchange(X25519PublicKey.from_public_bytes(theirs)))

    def cipher(self, plain, is_sealing):
        nonce = b"\0" * 4 + struct.pack("<Q", self.nonce)
        aead = ChaCha20Poly1305(self.key)
        self.nonce += 1
        out = (aead.encrypt if is_sealing else aead.decrypt)(nonce, plain, self.hash)
        self.mix_hash(out if is_sealing else plain)
        return out

    def write_1(self):
        """-> e"""
        e = public_bytes(self.e)
        self.mix_hash(e)
        self.mix_key(e)
        return e + self.cipher(b"", True)

    def read_2(self, message):
        """<- e, ee, s, es, payload"""
        self.theirs, sealed, payload = message[:32], message[32:80], message[80:]
        self.mix_hash(self.theirs)
        self.mix_key(self.theirs)
        self.mix_dh(self.e, self.theirs)
        self.remote_static = self.cipher(sealed, False)
        self.mix_dh(self.e, self.remote_static)
        return self.cipher(payload, False)

    def write_3(self, payload):
        """-> s, se, psk, payload"""
        out = self.cipher(public_bytes(self.s), True)
        self.mix_dh(self.s, self.theirs)
        self.chaining_key, to_hash, key = self.hkdf(self.psk, 3)
        self.mix_hash(to_hash)
        self.key, self.nonce = key[:32], 0
        return out + self.cipher(payload, True)

    def split(self):
        """Keys of the initiator's and the responder's records, and the exporter."""
        return [output[:32] for output in self.hkdf(b"", 3)]


class Records:
    """Section "Records": one direction of one connection."""

    def __init__(self, root, suite, epoch=0):
        self.epoch = epoch
        name = "aes256gcm" if suite == AES256 else "chacha20poly1305"
        key = kdf(root, f"record/1 {name} key")
        self.iv = kdf(root, f"record/1 {name} iv")[:12]
        self.aead = AESGCM(key) if suite == AES256 else ChaCha20Poly1305(key)
        self.number = 0

    def nonce(self):
        low = int.from_bytes(self.iv[4:], "little") ^ self.number
        self.number += 1
        return self.iv[:4] + low.to_bytes(8, "little")

    def seal(self, inner):
        header = struct.pack("<IB3x", len(inner), self.epoch & 0xff)
        return header + self.aead.encrypt(self.nonce(), inner, header)

    def open(self, header, sealed):
        try:
            return self.aead.decrypt(self.nonce(), sealed, header)
        except InvalidTag as error:
            raise Refused("a record does not open") from error


class Stream:
    """A socket that gives whole frames: of a handshake, or records."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()

    def fileno(self):
        return self.socket.fileno()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Refused(f"cannot send: {error}") from error

    def receive(self):
        try:
            data = self.socket.recv(1 << 18)
        except OSError as error:
            raise Refused(f"cannot receive: {error}") from error
        if not data:
            raise Refused("closed by the other side")
        self.buffer += data

    def take(self, count):
        out = bytes(self.buffer[:count])
        del self.buffer[:count]
        return out

    def frame(self):
        """Of a handshake: kind and what follows the prefix."""
        while len(self.buffer) < 8 or len(self.buffer) < 8 + self.buffer[6] + 256 * self.buffer[7]:
            self.receive()
        magic, major, kind, length = struct.unpack("<4sBBH", self.take(8))
        if magic != MAGIC or major != MAJOR:
            raise Refused("not a grapevine peer")
        return kind, self.take(length)

    def record(self, records):
        """The next inner part; None: not all of it is here."""
        if len(self.buffer) < 8:
            return None
        length, epoch, zero = struct.unpack("<IB3s", self.buffer[:8])
        if length > INNER_MAX or epoch != records.epoch & 0xff or any(zero):
            raise Refused("not a record")
        if len(self.buffer) < 8 + length + 16:
            return None
        return records.open(self.take(8), self.take(length + 16))


def prefix(kind, length):
    return struct.pack("<4sBBH", MAGIC, MAJOR, kind, length)


class Session:
    """Section "A connection", from the side that dials: control records, and a bulk connection."""

    def __init__(self, address, swarm, hello_for, suites):
        """hello_for(responder's sealed hello, its static key, ours): our own hello."""
        self.address = address
        self.control = Stream(address)
        self.bulk = None
        self.control_sent = 0  # what `after` counts
        noise = Noise(MAGIC + bytes([MAJOR]) + swarm.run_id, swarm.secret)
        h1 = noise.write_1()
        h1 = prefix(1, len(h1) + 16) + h1
        self.control.send(h1 + blake2b(h1, 16, kdf(swarm.secret, "gate")))
        kind, message = self.control.frame()
        if kind != 2:
            raise Refused("not the second message of a handshake")
        payload = noise.read_2(message)
        hello, remote_suites = hello_for(payload, noise.remote_static, public_bytes(noise.s))
        h3 = noise.write_3(hello)
        self.control.send(prefix(3, len(h3)) + h3)
        to, back, self.exporter = noise.split()
        self.id, self.epoch = noise.hash[:16], 0
        self.suite = AES256 if suites & remote_suites & AES256 else CHACHA20
        self.to, self.back = Records(to, self.suite), Records(back, self.suite)

    def fileno(self):
        return self.control.fileno()

    def send(self, inner):
        """One control record: inner header and body."""
        self.control.send(self.to.seal(inner))
        self.control_sent += 1

    def open_bulk(self):
        """Section "Bulk connections": the dialler opens them."""
        self.bulk = Stream(self.address)
        named = self.id + struct.pack("<II", 0, self.epoch)  # the first of its epoch
        nonce = os.urandom(16)
        asked = prefix(4, 56) + named + nonce
        asked += blake2b(asked, 16, kdf(self.exporter, "attach/1 initiator"))
        self.bulk.send(asked)
        kind, answer = self.bulk.frame()
        whole = prefix(kind, len(answer)) + answer
        mac = blake2b(asked + whole[:-16], 16, kdf(self.exporter, "attach/1 responder"))
        if kind != 5 or answer[:24] != named or mac != whole[-16:]:
            raise Refused("no bulk connection")
        context = named[16:] + nonce + answer[24:40]
        self.bulk_to, self.bulk_back = (
            Records(kdf(self.exporter, f"bulk/1 {who}", context), self.suite, self.epoch)
            for who in ("initiator", "responder"))

    def begin_epoch(self):
        """Section "Epochs": our key, for REKEY."""
        self.fresh = X25519PrivateKey.generate()
        return public_bytes(self.fresh)

    def enter_epoch(self, theirs):
        """With the key of REKEY_ACK, the last record of the old epoch."""
        shared = self.fresh.exchange(X25519PublicKey.from_public_bytes(theirs))
        self.epoch += 1
        self.exporter = kdf(self.exporter, "rekey/1", struct.pack("<I", self.epoch)
                            + public_bytes(self.fresh) + theirs + shared)
        self.to, self.back = (
            Records(kdf(self.exporter, f"epoch/1 {who}"), self.suite, self.epoch)
            for who in ("initiator", "responder"))

    def send_fin(self):
        self.bulk.send(self.bulk_to.seal(struct.pack("<BBHIII", 6, 0, 0, 0, 0, self.control_sent)
                                         + b"\x80"))

    def send_bulk(self, kind, stream, chunk, body):
        """DATA, not to be read before the control records sent so far."""
        header = struct.pack("<BBHIII", 128, kind, stream & 0xffff, chunk, stream >> 16,
                             self.control_sent)
        self.bulk.send(self.bulk_to.seal(header + body))

    def received(self, stream):
        """What came on one of our two streams; call it when that can be read."""
        stream.receive()
        return self.buffered(stream)

    def buffered(self, stream):
        while True:
            inner = stream.record(self.bulk_back if stream is self.bulk else self.back)
            if inner is None:
                return
            yield inner

    def close(self):
        for stream in (self.control, self.bulk):
            if stream is not None:
                stream.socket.close()
