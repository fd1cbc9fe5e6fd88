"""The member beside real peers: tests/e2e/test_interop.sh starts these and runs this.

    run.py KEY_FILE SWARM_NAME PAIR_PEER OFFERING_PEER GROUP_PEER GROUP_PEER

The first two average in pairs, one of them never of its own accord, the others in groups, all with
a learning rate of nearly nothing: so what their models are after a round follows from what they
were, and from ours.
"""
import sys
import time
from base64 import b32encode

import numpy

import wire
from member import Member
from rounds import Group, accept_pair, begin_pair, join_group, offer_pair, propose_group
from transport import CHACHA20, Identity, Refused, Session, Swarm

checks = 0
joined = []  # members of the scenario that runs


def check(what, is_so):
    global checks
    checks += 1
    if not is_so:
        sys.exit(f"WRONG: {what}")
    print(f"{what}: yes", flush=True)


def refused(what, act):
    try:
        act()
    except Refused as error:
        check(f"{what} ({error})", True)
    else:
        check(what, False)


def attempt(scenario, *arguments):
    """A busy machine makes members late, and late ones are left out: then again, as a new one."""
    for _ in range(10):
        try:
            return scenario(*arguments)
        except (Refused, TimeoutError) as error:
            print(f"{scenario.__name__} once more: {error}", flush=True)
        finally:
            while joined:
                joined.pop().leave()
    return check(f"{scenario.__name__} came to an end", False)


def shifted(plane, seed):
    """A model of our own: that of the swarm, and a tenth of it in another direction."""
    noise = numpy.random.default_rng(seed).standard_normal(len(plane)).astype("f4")
    return plane + noise * numpy.float32(0.1 * plane.std())


def is_near(a, b):
    return float(abs(a - b).max()) < 1e-5


def wait_for_model(member, link, expected, seconds=60):
    """Asked for now and then: a member answers thirty such requests a minute."""
    due, pause = 0, 0.1

    def is_there():
        nonlocal due, pause
        if time.monotonic() < due:
            return False
        due, pause = time.monotonic() + pause, min(2 * pause, 3)
        return is_near(member.download(link)[0][0], expected)
    member.wait("the model that the round makes", is_there, seconds)


def told(member, plane):
    """What others get of it."""
    return numpy.concatenate([wire.of_bytes(member.codec, wire.to_bytes(member.codec, chunk))
                              for chunk in wire.chunks_of(plane)])


def join(swarm, *addresses):
    """A member linked with these, that holds the model of the first of them."""
    member = Member(swarm, identity=Identity())
    joined.append(member)
    links = [member.dial(address) for address in addresses]
    member.wait("models to be there", lambda: all(link.progress and link.progress.is_serving
                                                  for link in links))
    sections, manifest = member.download(links[0])
    member.lineage, member.plane = manifest.lineage, sections[0]
    member.step, member.samples, member.round = manifest.step, manifest.samples, manifest.round
    member.tell_progress()
    return member, links


def strangers(swarm, address):
    refused("who has no swarm key hears nothing",
            lambda: Session(address, Swarm("of another name"), None, CHACHA20))
    observer = Member(swarm, is_observer=True, suites=CHACHA20, identity=Identity())
    link = observer.dial(address)
    status = observer.status(link)
    check("an observer with ChaCha20 alone is told the status", status["state"] == "training")
    link.send("STATE_REQ", want=1, round=0, base=0)
    check("an observer gets no model, and no answer; the status still",
          observer.status(link)["peer"] == status["peer"] and not link.heard)


def offered(swarm, address):
    """A round that the peer begins: it offers to whoever serves."""
    member, [link] = join(swarm, address)
    rounds = member.status(link)["rounds_ok"]
    before, member.plane = member.plane, shifted(member.plane, 2)
    ours = member.plane
    member.serve(True)
    share = accept_pair(member, link, member.take(link, "OFFER"))
    member.serve(False)
    moved = numpy.float32(share) * (told(member, ours) - told(member, before))
    wait_for_model(member, link, before + moved)
    check("a pair round that the peer began: both went their way",
          is_near(member.plane, ours - moved))
    check("it counts", member.status(link)["rounds_ok"] == rounds + 1)


def pairs(swarm, address):
    member, [link] = join(swarm, address)
    rounds = member.status(link)["rounds_ok"]
    before, member.plane = member.plane, shifted(member.plane, 1)
    ours = member.plane
    member.renew(link)  # keys may be renewed at any time
    share = offer_pair(member, link)
    moved = numpy.float32(share) * (told(member, ours) - told(member, before))
    wait_for_model(member, link, before + moved)
    check("a pair round that we began: both went half of the way",
          is_near(member.plane, ours - moved))
    check("it counts", member.status(link)["rounds_ok"] == rounds + 1)
    member.leave()
    observer = Member(swarm, is_observer=True, identity=Identity())
    watched, id = observer.dial(address), b32encode(member.identity.id).decode().lower()
    observer.wait("the farewell to be understood", lambda: "left" in [
        seen["state"] for seen in observer.status(watched)["members"] if seen["id"] == id])


def in_group(member, links, begin=lambda member, links: join_group(member, 1024)):
    """One round. What the peers hold afterwards follows only if everybody's values are in all
    parts. With a codec that rounds, each keeps what it has lost, so they are not equal."""
    before = {link.id: member.download(link)[0][0] for link in links}
    member.plane = ours = shifted(member.plane, 3)
    member.serve(True)
    group = begin(member, links)
    group.run()
    member.serve(False)
    if group.contributors != (1 << len(group.weights)) - 1:
        raise Refused("one of us was too late for the others")
    mean = group.weights[group.self] * told(member, ours)
    for i, link in group.links.items():
        mean = mean + group.weights[i] * told(member, before[link.id])
    mean /= sum(group.weights)
    check("the mean of a group round is by what START says of all",
          abs(group.agreed - mean).max() < 0.01 * abs(mean).max())  # rounded once more
    return group, before, {id: plane + (group.agreed - told(member, plane))
                           for id, plane in before.items()}


def groups(swarm, addresses):
    member, links = join(swarm, *addresses)
    rounds = [member.status(link)["rounds_ok"] for link in links]
    _, _, after = in_group(member, links)
    for link, count in zip(links, rounds):
        wait_for_model(member, link, after[link.id], 10)
        check("a peer holds it, and counts the round", member.status(link)["rounds_ok"] > count)


def proposed(swarm, addresses):
    member, links = join(swarm, *addresses)
    _, _, after = in_group(member, links, lambda *all: propose_group(*all, 1024))
    for link in links:
        wait_for_model(member, link, after[link.id], 10)
    check("a group round that we proposed, and the peers joined", True)


# ---- what the documents forbid, and what comes of it


def offended(member, link, kind):
    return member.status(link)["offences"][kind]


def another_round(swarm, address):
    member, [link] = join(swarm, address)
    rounds, model = member.status(link)["rounds_ok"], member.plane
    pair = begin_pair(member, link)
    credit = member.take(link, "CREDIT", stream=pair.stream)
    link.heard.append(credit)  # so that it is there for the true chunks
    for chunk in range(credit.chunks):
        link.session.send_bulk(wire.OFFER, pair.stream ^ 1 << 40, chunk,
                               wire.to_bytes(member.codec, pair.told.values[chunk] + 7))
    pair.exchange()
    pair.wait_for("READY")
    link.send("COMMIT", round=pair.key)
    wait_for_model(member, link, model)
    check("chunks of another round count nowhere", member.status(link)["rounds_ok"] == rounds + 1)


def another_distance(swarm, address):
    member, [link] = join(swarm, address)
    rounds = member.status(link)["rounds_ok"]
    member.serve(True)
    offer = member.take(link, "OFFER")
    refused("a distance that is not the one the peer measured",
            lambda: accept_pair(member, link, offer, untrue=1))
    member.serve(False)
    check("nothing was taken of it", member.status(link)["rounds_ok"] == rounds)


def not_a_number(swarm, address):
    member, [link] = join(swarm, address)
    offences = offended(member, link, "not_finite")
    pair = begin_pair(member, link)
    pair.told.chunks = [b"\xff" * len(one) for one in pair.told.chunks]
    refused("NaN is answered with ABORT 2", lambda: (pair.exchange(), pair.wait_for("READY")))
    check("and remembered", offended(member, link, "not_finite") > offences)


def second_handshake(swarm, address):
    member, [link] = join(swarm, address)
    link.session.control.send(b"GRPV\1\1\0\0")
    member.wait("the hang-up", lambda: not link.is_open)
    check("a handshake on an open connection ends it", True)


def hostile_mean(swarm, addresses):
    member, links = join(swarm, *addresses)
    offences = offended(member, links[0], "broke_protocol")
    honest, Group.hash_of_part = Group.hash_of_part, lambda self, own: b"\x55" * 32
    try:
        group, before, after = in_group(member, links)
    finally:
        Group.hash_of_part = honest
    own = slice(*(wire.CHUNK * group.bounds[group.self + i] for i in (0, 1)))
    expected = after[links[0].id]
    expected[own] = before[links[0].id][own]
    wait_for_model(member, links[0], expected, 10)
    check("of a part whose MEAN has a wrong hash the peers keep their own values",
          offended(member, links[0], "broke_protocol") > offences)


def another_start(swarm, addresses):
    member, links = join(swarm, *addresses)
    offences = [offended(member, link, "broke_protocol") for link in links]
    member.serve(True)
    group = join_group(member, 1024)
    for link in links:
        link.send("CREDIT", stream=group.stream, chunks=1, start=bytes(32))
    for link in links:
        member.take(link, "CANCEL", stream=group.stream)
    member.serve(False)
    check("who has another START is left by the others, and nobody is charged",
          offences == [offended(member, link, "broke_protocol") for link in links])


def lying_start(swarm, addresses):
    member, links = join(swarm, *addresses)
    offences = offended(member, links[0], "late")

    def lie(said):
        said[1][0] += 1  # the samples of the first peer

    propose_group(member, links, 1024, lie)
    member.take(links[0], "CANCEL")
    check("a member of which START says what it never said leaves, and charges the proposer",
          offended(member, links[0], "late") > offences)


def main(key_file, name, pair_peer, offering_peer, *group_peers):
    swarm = Swarm(name, key_file)
    attempt(strangers, swarm, pair_peer)
    attempt(pairs, swarm, pair_peer)
    attempt(offered, swarm, offering_peer)
    attempt(groups, swarm, group_peers)
    attempt(another_distance, swarm, offering_peer)
    for one in (another_round, not_a_number, second_handshake):
        attempt(one, swarm, pair_peer)
    attempt(proposed, swarm, group_peers)
    for one in (hostile_mean, another_start, lying_start):
        attempt(one, swarm, group_peers)
    print(f"{checks} checks")


if __name__ == "__main__":
    main(*sys.argv[1:])
