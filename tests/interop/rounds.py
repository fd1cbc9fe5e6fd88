"""Rounds of a member: a pair round from either end, a group round, joined or proposed.

Written from averaging/WIRE.md: "What all rounds share", "Streams", "Swaps", "Pair rounds", "Group
rounds". Rule `mean` alone; the plane is the model's parameters and, where it has them,
statistics.
"""
import struct
from types import SimpleNamespace

import numpy

import wire
from transport import Refused, blake2b

ALPHA = 0.5
AT_ONCE = 32  # chunks that one member may have on the way to another


def round_key(link_or_identity, counter):
    return link_or_identity.id + link_or_identity.boot + struct.pack("<Q", counter)


def method(member):
    return f"{member.codec}."  # rule mean


class Told:
    """What others get of our plane: encoded chunks, and what these decode to."""

    def __init__(self, member):
        self.chunks = [wire.to_bytes(member.codec, one) for one in wire.chunks_of(member.plane)]
        self.values = [wire.of_bytes(member.codec, one) for one in self.chunks]


class Pair:
    """A round between us and one other member; `run` gives the plane after it."""

    def __init__(self, member, link, key, alpha):
        self.member, self.link, self.key = member, link, key
        self.alpha = alpha
        self.told = Told(member)
        self.stream = wire.stream_of(key)

    def exchange(self):
        """Chunks both ways under credit; the squared distance of READY."""
        count, theirs, sent, credit, granted = len(self.told.chunks), {}, 0, 0, 0
        while len(theirs) < count or sent < count:
            if granted - len(theirs) <= AT_ONCE // 2 and granted < count:
                more = min(count, len(theirs) + AT_ONCE) - granted
                self.link.send("CREDIT", stream=self.stream, chunks=more)
                granted += more
            while sent < credit:
                self.link.session.send_bulk(wire.OFFER, self.stream, sent, self.told.chunks[sent])
                sent += 1
            came = self.member.take(self.link, "CREDIT", "DATA", "ABORT", stream=self.stream,
                                    round=self.key)
            if came.name == "ABORT":
                raise Refused(f"ABORT {came.code}")
            if came.name == "CREDIT":
                credit += came.chunks
            elif came.kind == wire.OFFER and came.chunk not in theirs:
                theirs[came.chunk] = wire.of_bytes(self.member.codec, came.body)
        self.theirs = numpy.concatenate([theirs[chunk] for chunk in range(count)])
        self.squared = sum(float(((a.astype("f8") - b) ** 2).sum())
                           for a, b in zip(wire.chunks_of(self.theirs), self.told.values))

    def settle(self):
        """Both ends move by exact opposites, as neither clips. Gives the share of the way."""
        weight = numpy.float32(self.alpha)
        ours = numpy.concatenate(self.told.values)
        self.member.plane = self.member.plane + weight * (self.theirs - ours)
        return self.alpha

    def wait_for(self, *names):
        came = self.member.take(self.link, *names, "ABORT", round=self.key)
        if came.name == "ABORT":
            raise Refused(f"ABORT {came.code}")
        return came


class Crossed(Exception):
    """Both have offered at once, and theirs goes on."""


def begin_pair(member, link):
    """OFFER, and what comes of it."""
    member.counter += 1
    key = round_key(member.identity, member.counter)
    member.decided = {key: None}  # of earlier rounds all is settled
    link.send("OFFER", round=key, step=member.step, schema=link.remote.schema, codec=method(member),
              chunks=len(wire.chunks_of(member.plane)), alpha=ALPHA, deadline_ms=60000,
              lineage=member.lineage)
    link.heard = [message for message in link.heard if message.name != "OFFER"]
    member.offering = link
    try:
        answer = member.take(link, "ACCEPT", "REJECT", "OFFER")
        while answer.name == "OFFER" or answer.round != key:
            if answer.name == "OFFER" and link.id < member.identity.id:
                raise Crossed(answer)  # else it accepts ours
            answer = member.take(link, "ACCEPT", "REJECT", "OFFER")
    finally:
        member.offering = None
    if answer.name == "REJECT":
        raise Refused(f"REJECT {answer.code}")
    return Pair(member, link, key, answer.alpha)


def offer_pair(member, link):
    """We begin, and decide. Gives the share of the way that both went."""
    try:
        pair = begin_pair(member, link)
    except Crossed as theirs:
        return accept_pair(member, link, theirs.args[0])
    pair.exchange()
    ready = pair.wait_for("READY")
    if not numpy.isclose(ready.squared, pair.squared, rtol=1e-3):
        member.decided = {}
        link.send("ABORT", round=pair.key, code=3)
        raise Refused("it has seen other planes than we")
    member.decided[pair.key] = True
    link.send("COMMIT", round=pair.key)
    return pair.settle()


def accept_pair(member, link, offer, untrue=0):
    """It began. What we promise with READY is its to decide; `untrue` is added to the distance."""
    key = offer.round
    if offer.codec != method(member) or offer.lineage != member.lineage:
        link.send("REJECT", round=key, code=6 if offer.codec != method(member) else 4,
                  retry_ms=1000)
        raise Refused("it averages otherwise, or another model")
    pair = Pair(member, link, key, min(offer.alpha, ALPHA))
    link.send("ACCEPT", round=key, alpha=pair.alpha, credit=0)
    pair.exchange()
    link.send("READY", round=key, squared=pair.squared + untrue)
    pair.wait_for("COMMIT")
    return pair.settle()


class Group:
    """A group round, direct: each owns a part, sums it up, and tells all."""

    def __init__(self, member, proposer, form, samples):
        self.member, self.proposer, self.form = member, proposer, form
        self.key = round_key(proposer, form.round)
        self.stream, self.samples = wire.stream_of(self.key), samples

    def begin(self, start):
        """What follows from START: weights and parts."""
        ids = [start.members[at:at + 20] for at in range(0, len(start.members), 36)]
        said = list(struct.iter_unpack("<QQ", start.statements))
        self.self = ids.index(self.member.identity.id)
        if said[self.self] != (self.samples, 0):
            raise Refused("START says of us what we never said")
        self.start = start_digest(start)
        self.weights = [weight / 16 for weight in weights_of([samples for samples, _ in said])]
        self.links = {i: self.member.links[id] for i, id in enumerate(ids) if i != self.self}
        self.told = Told(self.member)
        self.chunks = self.told.values
        self.bounds = direct_bounds(len(self.chunks), rates_of([rate for _, rate in said]))
        self.contributors = (1 << len(ids)) - 1  # whose values are in every part
        self.index = {link.id: i for i, link in self.links.items()}

    def part(self, owner):
        return range(self.bounds[owner], self.bounds[owner + 1])

    def run(self):
        """Our chunks to the owners, our part's mean to all, theirs back."""
        own, sums, gave = self.part(self.self), {}, dict.fromkeys(self.links, 0)
        sent, credit, granted = (dict.fromkeys(self.links, 0) for _ in range(3))
        agreed, hashes, codec = {}, {}, self.member.codec
        for chunk in own:
            sums[chunk] = self.chunks[chunk].astype("f8") * self.weights[self.self]
        left = {chunk: set(self.links) for chunk in own}
        total = sum(self.weights)
        while len(agreed) < len(self.chunks) or any(
                i not in hashes for i in self.links if self.part(i)):
            for i, link in self.links.items():
                more = min(len(own), gave[i] + AT_ONCE) - granted[i]
                if more > 0:
                    link.send("CREDIT", stream=self.stream, chunks=more, start=self.start)
                    granted[i] += more
                while sent[i] < min(credit[i], len(self.part(i))):
                    chunk = self.part(i)[sent[i]]
                    link.session.send_bulk(wire.OFFER, self.stream, chunk, self.told.chunks[chunk])
                    sent[i] += 1
            i, came = self.next()
            if came.name in ("ABORT", "CANCEL"):
                raise Refused(f"a member left the round: {came.name} {came.code}")
            if came.name == "CREDIT" and came.start != self.start:
                raise Refused("a member has another START than we")
            if came.name == "CREDIT":
                credit[i] += came.chunks
            elif came.name == "MEAN":
                hashes[i] = came.hash
                self.contributors &= came.contributors
            elif came.kind == wire.OFFER:
                chunk = came.chunk
                left[chunk].remove(i)
                sums[chunk] += wire.of_bytes(codec, came.body) * self.weights[i]
                gave[i] += 1
                if not left[chunk]:
                    body = wire.to_bytes(codec, sums[chunk] / total)
                    agreed[chunk] = wire.of_bytes(codec, body)
                    for link in self.links.values():
                        link.session.send_bulk(wire.MEAN, self.stream, chunk, body)
                    if all(chunk in agreed for chunk in own):
                        self.tell_mean(own)
            elif came.kind == wire.MEAN and came.chunk in self.part(i):
                agreed[came.chunk] = wire.of_bytes(codec, came.body)
        self.agreed = numpy.concatenate([agreed[at] for at in range(len(self.chunks))])
        ours = numpy.concatenate(self.chunks)
        self.member.plane = self.member.plane + (self.agreed - ours)
        return self.weights[self.self] / total

    def next(self):
        """What comes next of this round, from whomever."""
        def found():
            for i, link in self.links.items():
                for message in link.heard:
                    if message.name in ("CREDIT", "DATA", "MEAN", "ABORT", "CANCEL"):
                        link.heard.remove(message)
                        if self.is_of_round(message):
                            return i, message
            return None
        return self.member.wait("a word of the round", found)

    def is_of_round(self, message):
        return (getattr(message, "stream", self.stream) == self.stream
                and getattr(message, "round", self.key) == self.key)  # of ABORT

    def hash_of_part(self, own):
        return blake2b(bytes(32) * len(own))  # zeros: the owner itself sends the chunks

    def tell_mean(self, own):
        hash = self.hash_of_part(own)
        for link in self.links.values():
            link.send("MEAN", stream=self.stream, part=self.self,
                      contributors=(1 << len(self.weights)) - 1, hash=hash)


def start_digest(start):
    """Of all that START settles."""
    members = pieces(start.members, 36)
    head = struct.pack("<QIBB", start.round, start.ballot, getattr(start, "schedule", 0),
                       len(members))
    return blake2b(head + b"".join(map(bytes.__add__, members, pieces(start.statements, 16))))


def median(values):
    return sorted(values)[(len(values) - 1) // 2]


def weight_of(value, middle):
    ratio, weight = value / middle, 16
    while weight > 1 and ratio < 0.70710678:
        weight, ratio = weight // 2, ratio * 2
    while weight < 32 and ratio > 1.41421357:
        weight, ratio = weight * 2, ratio / 2
    return weight


def weights_of(samples):
    middle = median(samples)
    weights = [weight_of(one, middle) if middle else 16 for one in samples]
    return [min(weights[0], 16)] + weights[1:]


def rates_of(rates):
    known = [rate for rate in rates if rate]
    return weights_of([rate or median(known) for rate in rates] if known else rates)


def direct_bounds(chunks, rates):
    """Parts by rate: where each begins, and the end."""
    members = len(rates)
    shares, order = [1] * members, sorted(range(members), key=lambda i: -rates[i])
    if members > 2:
        total = count = 0
        for i in order:
            if count > 0 and (members - 2 + count) * rates[i] <= total:
                break
            total, count = total + rates[i], count + 1
        shares = [max(0, (members - 2 + count) * rates[i] - total) if order.index(i) < count else 0
                  for i in range(members)]
    ends = [chunks * sum(shares[:i]) // sum(shares) for i in range(members + 1)]
    most = -(-2 * chunks // members)
    counts = [min(most, ends[i + 1] - ends[i]) for i in range(members)]
    left = chunks - sum(counts)
    while left > 0:
        for at, i in enumerate(order):
            more = min(-(-left // (members - at)), most - counts[i])
            counts[i], left = counts[i] + more, left - more
    return [sum(counts[:i]) for i in range(members + 1)]


def join_group(member, samples):
    """Join what is proposed until a START counts us in."""
    group = None
    while True:
        def found():
            for link in list(member.links.values()):
                for message in link.heard:
                    if message.name in ("FORM", "START"):
                        link.heard.remove(message)
                        return link, message
            return None
        link, message = member.wait("FORM", found)
        if member.identity.id + member.identity.boot not in pieces(message.members, 36):
            continue
        if message.codec != method(member) or message.lineage != member.lineage:
            link.send("ABORT", round=link.id + link.boot + struct.pack("<Q", message.round), code=8)
        elif message.name == "FORM":
            group = Group(member, link, message, samples)
            link.send("JOIN", round=message.round, ballot=message.ballot, samples=samples,
                      only_direct=1)
        elif group is not None and group.proposer is link and is_same(group.form, message):
            group.begin(message)
            return group


def is_same(form, start):
    return (form.round, form.ballot) == (start.round, start.ballot)


def propose_group(member, links, samples, lie=lambda said: None):
    """FORM to all of these; all must join. START passes on what each has said."""
    form = dict(round=max(link.progress.round for link in links) + 1, ballot=0,
                members=b"".join(one.id + one.boot for one in [member.identity] + links),
                schema=links[0].remote.schema, lineage=member.lineage, codec=method(member),
                chunks=len(wire.chunks_of(member.plane)), deadline_ms=10000)
    group = Group(member, member.identity, SimpleNamespace(**form), samples)
    for link in links:
        link.send("FORM", **form)
    said = [[samples, 0]]
    for link in links:
        answer = member.take(link, "JOIN", "ABORT")
        while not (answer.name == "JOIN" and is_same(group.form, answer)):
            if answer.name == "ABORT" and answer.round == group.key:
                raise Refused(f"ABORT {answer.code} instead of JOIN")
            answer = member.take(link, "JOIN", "ABORT")
        said.append([answer.samples, getattr(answer, "rate", 0)])
    group.begin(SimpleNamespace(**form, statements=pack_statements(said)))
    lie(said)
    for link in links:
        link.send("START", **form, statements=pack_statements(said))
    return group


def pack_statements(said):
    return b"".join(struct.pack("<QQ", *one) for one in said)


def pieces(data, size):
    return [data[at:at + size] for at in range(0, len(data), size)]
