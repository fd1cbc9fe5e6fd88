"""A member of a swarm: who it is linked with, what it answers, and what it can be asked to do.

One thread, no clock of its own: `turn()` waits for whatever comes over any link and deals with it;
everything that takes several messages turns until it has what it waits for. The sections named in
comments are those of gossip/WIRE.md, from "Rounds" on those of averaging/WIRE.md.
"""
import json
import os
import selectors
import struct
import time

import numpy

import wire
from transport import AES256, CHACHA20, Refused, Session, blake2b
from wire import encode

PATIENCE = 60  # seconds until something that should come is missed


class Link:
    """An open session with one peer, and what that peer said of itself."""

    def __init__(self, session, remote):
        self.session, self.remote, self.id, self.boot = session, remote, remote.id, remote.boot
        self.received = 0  # control records, HELLO_OK aside: what `after` of DATA counts
        self.early = []  # DATA that came before the control records it is to follow
        self.heard = []  # messages that nobody has waited for yet
        self.progress = None
        self.asked = []  # when for the status
        self.is_open = True

    def send(self, name, **values):
        self.session.send(encode(name, **values))


class Member:
    def __init__(self, swarm, is_observer=False, suites=CHACHA20 | AES256, identity=None):
        self.swarm, self.identity, self.is_observer, self.suites = (
            swarm, identity, is_observer, suites)
        self.links, self.selector = {}, selectors.DefaultSelector()
        self.incarnation, self.records = 1, {}  # member records heard, by the id that signed them
        self.lineage, self.plane, self.codec = bytes(32), None, None
        self.samples = self.step = self.round = 0
        self.is_serving = False  # true: others may invite us to rounds
        self.counter = 0  # of pair rounds that we begin
        self.offering = None  # a link
        self.decided = {}  # of these, by key: True; None: not decided yet
        self.on = {}  # name of a message: who deals with it as it comes

    # ---- "A connection", "The first messages"

    def dial(self, address):
        def answer(payload, remote_static, own_static):
            nonlocal remote
            remote = wire.open_hello(payload, self.swarm.run_id, remote_static)
            hello = wire.hello(self.identity, self.swarm.run_id, own_static, suites=self.suites,
                               role=int(self.is_observer), model=remote.model,
                               method="" if self.is_observer else remote.method,
                               schema=bytes(32) if self.is_observer else remote.schema)
            return hello, remote.suites

        remote = None
        session = Session(address, self.swarm, answer, self.suites)
        while True:  # the first record is HELLO_OK or ERROR
            inner = session.control.record(session.back)
            if inner is not None:
                break
            session.control.receive()
        first = wire.decode(inner)
        if first.name != "HELLO_OK":
            session.close()
            raise Refused(getattr(first, "text", "no HELLO_OK"))
        link = self.links[remote.id] = Link(session, remote)
        self.codec = remote.method.partition("codec ")[2].partition(",")[0]
        self.selector.register(session.control, selectors.EVENT_READ, (link, session.control))
        if not self.is_observer:
            record = wire.member_record(self.identity, self.swarm.run_id, self.incarnation)
            link.send("GOSSIP", records=[record])
            link.send("SYNC_REQ", digest=b"", page=0)
            self.tell_progress(link)
            self.open_bulk(link)
        for inner in session.buffered(session.control):  # may have come together with HELLO_OK
            self.deal_with(link, inner)
        return link

    def open_bulk(self, link):
        if link.session.bulk is None:
            link.session.open_bulk()
            self.selector.register(link.session.bulk, selectors.EVENT_READ,
                                   (link, link.session.bulk))

    def renew(self, link):
        """Section "Epochs": new keys; what is under way on the old bulk connection comes first."""
        session = link.session
        link.send("REKEY", epoch=session.epoch + 1, key=session.begin_epoch())
        self.take(link, "REKEY_ACK")  # entered as it comes: the next record is of the new epoch
        session.send_fin()
        self.take(link, "FIN")
        self.selector.unregister(session.bulk)
        session.bulk.socket.close()
        session.bulk = None
        self.open_bulk(link)

    def tell_progress(self, *links):
        for link in links or list(self.links.values()):
            link.send("PROGRESS", lineage=self.lineage, samples=self.samples, step=self.step,
                      round=self.round, is_serving=self.is_serving, is_done=False,
                      is_settled=False)

    def serve(self, is_serving):
        self.is_serving = is_serving
        self.tell_progress()

    def close(self, link):
        if link.is_open:
            link.is_open = False
            self.links.pop(link.id, None)
            for stream in (link.session.control, link.session.bulk):
                if stream is not None:
                    self.selector.unregister(stream)
            link.session.close()

    def leave(self):
        """A signed farewell, so that nobody looks for us, and GOAWAY."""
        self.incarnation += 1
        record = wire.member_record(self.identity, self.swarm.run_id, self.incarnation, True)
        for link in list(self.links.values()):
            try:
                link.send("GOSSIP", records=[record])
                link.send("GOAWAY", reason=1, retry_ms=0)
            except Refused:
                pass
            self.close(link)

    # ---- what comes

    def turn(self, seconds=0.1):
        for key, _ in self.selector.select(seconds):
            link, stream = key.data
            if not link.is_open:
                continue
            try:
                for inner in link.session.received(stream):
                    self.deal_with(link, inner)
            except Refused:
                self.close(link)

    def wait(self, what, happened, seconds=PATIENCE):
        """Turn until happened() gives something, and give that."""
        end = time.monotonic() + seconds
        told = time.monotonic()
        while not (result := happened()):
            if time.monotonic() > end:
                raise TimeoutError(f"waited in vain for {what}")
            if not self.is_observer and time.monotonic() > told + 1:
                self.tell_progress()
                told = time.monotonic()
            self.turn()
        return result

    def take(self, link, *names, **where):
        """The next message of one of these names from this link; what is in `where` must be so
        where the message has it."""
        def found():
            for message in link.heard:
                if message.name in names and all(getattr(message, key, value) == value
                                                 for key, value in where.items()):
                    link.heard.remove(message)
                    return message
            if not link.is_open:
                raise Refused("the link was closed")
            return None
        return self.wait(" or ".join(names), found)

    def deal_with(self, link, inner):
        message = wire.decode(inner)
        if message.name == "DATA":
            link.early.append(message)
        elif message.name == "FIN":  # on the bulk connection
            link.heard.append(message)
        else:
            link.received += 1
            self.deal_with_control(link, message)
        for data in [data for data in link.early if data.after <= link.received]:
            link.early.remove(data)
            self.on.get("DATA", lambda link, data: link.heard.append(data))(link, data)

    def deal_with_control(self, link, message):
        """What must be answered is; the rest waits until somebody asks for it."""
        name = message.name
        if name == "PING":
            link.send("ACK", seq=message.seq, records=[])
        elif name == "PING_REQ":  # do we reach that one? It is linked, so its ACK would come
            is_linked = message.target in self.links
            if is_linked:
                link.send("ACK", seq=message.seq, records=[])
            else:
                link.send("NACK", seq=message.seq)
        elif name == "SYNC_REQ":  # all we know is our own record
            own = wire.member_record(self.identity, self.swarm.run_id, self.incarnation)
            link.send("SYNC", page=0, records=[own], pages=1)
        elif name == "STATE_REQ":  # this one gives no downloads
            link.send("STATE_DENY", code=1, retry_ms=1000)
        elif name == "OFFER" and not self.is_serving and link is not self.offering:
            link.send("REJECT", round=message.round, code=1, retry_ms=1000)
        elif name == "OUTCOME_REQ":  # our COMMIT came too late, or there was none
            is_decided = self.decided.get(message.round)
            state = 1 if is_decided else 0 if message.round in self.decided else 2
            link.send("OUTCOME", round=message.round, state=state)
        elif name == "REKEY_ACK":
            link.session.enter_epoch(message.key)
            link.heard.append(message)
        elif name == "PROGRESS":
            link.progress = message
        elif name in ("GOSSIP", "SYNC", "ACK"):
            pass
        elif name == "GOAWAY":
            raise Refused("it left")
        elif name in self.on:
            self.on[name](link, message)
        else:
            link.heard.append(message)

    # ---- status (observers too)

    def status(self, link):
        while sum(time.monotonic() < asked + 1.5 for asked in link.asked) >= 4:
            self.turn(0.05)  # who asks more often gets no answer
        link.asked.append(time.monotonic())
        link.send("STATUS_REQ")
        return json.loads(self.take(link, "STATUS").text)

    # ---- "Download"

    def download(self, link, want=1):
        """The sections asked for, as one array each, and the manifest."""
        link.send("STATE_REQ", want=want, round=0, base=0)
        manifest = self.take(link, "STATE_MANIFEST", "STATE_DENY")
        if manifest.name == "STATE_DENY":
            raise Refused(f"no download: code {manifest.code}")
        if not wire.manifest_is_signed(manifest, self.swarm.run_id, link.id):
            raise Refused("the manifest is not the donor's")
        hashes = b""
        for page in range(manifest.pages):
            link.send("MANIFEST_REQ", page=page, lease=manifest.lease)
            hashes += self.take(link, "MANIFEST_PAGE", page=page, lease=manifest.lease).hashes
        if len(hashes) != 32 * manifest.buckets or blake2b(hashes) != manifest.root:
            raise Refused("the listing is not that of the manifest")
        buckets = [None] * manifest.buckets
        for first in range(0, manifest.buckets, 16):  # more than that at once is forgotten
            count = min(16, manifest.buckets - first)
            link.send("BUCKET_REQ", first=first, count=count, lease=manifest.lease)
            for _ in range(count):
                data = self.take(link, "DATA", kind=wire.STATE, stream=manifest.lease & 0xffff)
                if blake2b(data.body) != hashes[32 * data.chunk:32 * data.chunk + 32]:
                    raise Refused("a bucket has another hash")
                buckets[data.chunk] = wire.values_of(data.body)
        link.send("STATE_DONE", lease=manifest.lease)
        sections, first = {}, 0
        for at in range(0, len(manifest.sections), 9):
            number, values = struct.unpack("<BQ", manifest.sections[at:at + 9])
            count = -(-values // wire.CHUNK)  # a section's last bucket is shorter
            sections[number] = numpy.concatenate(buckets[first:first + count])
            first += count
        return sections, manifest
