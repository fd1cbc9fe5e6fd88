/*
 * See gate.h. Rations are those of gossip/flow/ration.h; giving a token back moves the time back.
 * Of the last quarter of the half that is open to all, a prefix gets the less the more it owes, so
 * that the last tokens go to those who took none yet.
 */
#include "gossip/door/gate.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/flow/ration.h"
#include "gossip/times.h"
#include "gossip/wire/address.h"

#define PREFIX_COST_NS (NS_PER_S / GATE_PREFIX_RATE)
#define HALF_COST_NS   (NS_PER_S / GATE_HALF_RATE)
#define PREFIX_FULL_NS (GATE_PREFIX_BURST * PREFIX_COST_NS)

enum { SLOTS = GATE_WAITING_MAX + GATE_ANSWERING_MAX, HALF_OPEN = 0, HALF_KNOWN = 1 };

enum stage { STAGE_NONE, STAGE_WAITING, STAGE_ANSWERING };

struct slot {
    uint64_t number, prefix, since_ns;
    enum stage stage;
    uint32_t half;  /* which of the common buckets it took from; ANSWERING only */
    uint32_t crowd; /* slots of this stage and prefix, itself included */
};

struct ration {
    uint64_t prefix;  /* 0: free */
    uint64_t full_ns; /* when nothing is owed any more */
};

struct gate {
    struct slot slots[SLOTS];
    struct ration rations[GATE_PREFIXES_MAX];
    uint64_t half_full_ns[2];
    uint64_t marks[GATE_REPLAY_MARKS]; /* first 8 bytes of ephemeral keys; 0: free */
    uint32_t marks_next;
    struct gate_counts counts;
};

struct gate *gate_create(void)
{
    return mem_alloc(sizeof(struct gate));
}

void gate_destroy(struct gate *gate)
{
    mem_free(gate);
}

void gate_counts(const struct gate *gate, struct gate_counts *counts)
{
    *counts = gate->counts;
}

uint64_t gate_prefix(const char *address)
{
    uint8_t number[HOST_NUMBER_BYTES_MAX], bytes[8] = {0};
    size_t count = address_host_number(address, number);

    if (count == 0) {
        struct digest digest = hash_of(address, strlen(address));

        memcpy(bytes, digest.bytes, 7);
        bytes[7] = 1;
    } else {
        memcpy(bytes, number, count == 4 ? 3 : 7);
        bytes[7] = count == 4 ? 4 : 6; /* which tells the two from each other */
    }
    return load_le64(bytes);
}

/* ---- slots ---- */

static struct slot *slot_find(struct gate *gate, uint64_t number)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (gate->slots[i].stage != STAGE_NONE && gate->slots[i].number == number) {
            return &gate->slots[i];
        }
    }
    return NULL;
}

static uint32_t *stage_count(struct gate *gate, enum stage stage)
{
    return stage == STAGE_WAITING ? &gate->counts.waiting : &gate->counts.answering;
}

/* `slot`, whose stage and prefix are set, joins those of its kind. */
static void slot_join(struct gate *gate, struct slot *slot)
{
    slot->crowd = 1;
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct slot *other = &gate->slots[i];

        if (other == slot || other->stage != slot->stage || other->prefix != slot->prefix) continue;
        other->crowd++;
        slot->crowd = other->crowd;
    }
    ++*stage_count(gate, slot->stage);
}

static void slot_part(struct gate *gate, struct slot *slot)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct slot *other = &gate->slots[i];

        if (other != slot && other->stage == slot->stage && other->prefix == slot->prefix) {
            other->crowd--;
        }
    }
    --*stage_count(gate, slot->stage);
}

static void slot_free(struct gate *gate, struct slot *slot)
{
    slot_part(gate, slot);
    *slot = (struct slot){.stage = STAGE_NONE};
}

/* The oldest of the prefix that holds most slots of `stage`. */
static struct slot *slot_of_busiest(struct gate *gate, enum stage stage)
{
    struct slot *worst = NULL;

    for (uint32_t i = 0; i < SLOTS; i++) {
        struct slot *slot = &gate->slots[i];

        if (slot->stage != stage) continue;
        if (worst == NULL || slot->crowd > worst->crowd ||
            (slot->crowd == worst->crowd && slot->since_ns < worst->since_ns)) {
            worst = slot;
        }
    }
    CHECK(worst != NULL);
    return worst;
}

static uint64_t evict(struct gate *gate, struct slot *slot)
{
    uint64_t number = slot->number;

    slot_free(gate, slot);
    gate->counts.evicted++;
    return number;
}

uint64_t gate_enter(struct gate *gate, uint64_t number, const char *address, uint64_t now_ns)
{
    uint64_t evicted = 0;

    CHECK(number != 0 && slot_find(gate, number) == NULL);
    if (gate->counts.waiting == GATE_WAITING_MAX) {
        evicted = evict(gate, slot_of_busiest(gate, STAGE_WAITING));
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (gate->slots[i].stage != STAGE_NONE) continue;
        gate->slots[i] = (struct slot){.number = number,
                                       .prefix = gate_prefix(address),
                                       .since_ns = now_ns,
                                       .stage = STAGE_WAITING};
        slot_join(gate, &gate->slots[i]);
        break;
    }
    gate->counts.entered++;
    if (gate->counts.waiting > gate->counts.waiting_max) {
        gate->counts.waiting_max = gate->counts.waiting;
    }
    return evicted;
}

/* ---- replays and rations ---- */

static bool is_replayed(struct gate *gate, const uint8_t *ephemeral)
{
    uint64_t mark = load_le64(ephemeral) | 1;

    for (uint32_t i = 0; i < GATE_REPLAY_MARKS; i++) {
        if (gate->marks[i] == mark) return true;
    }
    gate->marks[gate->marks_next] = mark;
    gate->marks_next = (gate->marks_next + 1) % GATE_REPLAY_MARKS;
    return false;
}

static uint64_t debt_ns(uint64_t full_ns, uint64_t now_ns)
{
    return full_ns > now_ns ? full_ns - now_ns : 0;
}

/* The ration of `prefix`; where there is none, a free one or the one that owes least. */
static struct ration *ration_of(struct gate *gate, uint64_t prefix, uint64_t now_ns)
{
    struct ration *least = &gate->rations[0];

    for (uint32_t i = 0; i < GATE_PREFIXES_MAX; i++) {
        struct ration *ration = &gate->rations[i];

        if (ration->prefix == prefix) return ration;
        if (ration->full_ns < least->full_ns) least = ration;
    }
    *least = (struct ration){.prefix = prefix, .full_ns = now_ns};
    return least;
}

/* Can one more be answered? Which half pays goes to `half`. */
static bool is_in_ration(struct gate *gate, const struct ration *ration, bool is_known,
                         uint64_t now_ns, uint32_t *half)
{
    uint64_t owed = debt_ns(ration->full_ns, now_ns);
    uint64_t common = debt_ns(gate->half_full_ns[HALF_OPEN], now_ns);
    uint64_t allowed;

    if (!ration_has(ration->full_ns, now_ns, PREFIX_COST_NS, PREFIX_FULL_NS)) {
        gate->counts.spent_prefix++;
        return false;
    }
    *half = HALF_KNOWN;
    if (is_known &&
        ration_has(gate->half_full_ns[HALF_KNOWN], now_ns, HALF_COST_NS, GATE_HALF_FULL_NS)) {
        return true;
    }
    *half = HALF_OPEN;
    if (common + HALF_COST_NS <= GATE_HALF_FULL_NS) {
        allowed =
            4 * PREFIX_FULL_NS / 1000 * ((GATE_HALF_FULL_NS - common) / (GATE_HALF_FULL_NS / 1000));
        if (owed <= allowed) return true;
    }
    gate->counts.spent_all++;
    return false;
}

static void give_back(uint64_t *full_ns, uint64_t cost_ns, uint64_t now_ns)
{
    if (debt_ns(*full_ns, now_ns) >= cost_ns) *full_ns -= cost_ns;
}

/* Room for one more handshake: the oldest of the busiest prefix goes if it has stalled; a burst of
 * honest ones is only told to come again. */
static bool make_room(struct gate *gate, uint64_t now_ns, uint64_t *evicted)
{
    struct slot *slot;

    if (gate->counts.answering < GATE_ANSWERING_MAX) return true;
    slot = slot_of_busiest(gate, STAGE_ANSWERING);
    if (now_ns - slot->since_ns < GATE_STALLED_NS) {
        gate->counts.spent_all++;
        return false;
    }
    *evicted = evict(gate, slot);
    return true;
}

enum gate_verdict gate_answer(struct gate *gate, uint64_t number,
                              const uint8_t ephemeral[PUBLIC_KEY_BYTES], bool is_known,
                              uint64_t now_ns, uint64_t *evicted)
{
    struct slot *slot = slot_find(gate, number);
    struct ration *ration;
    uint32_t half = HALF_OPEN;

    CHECK(slot != NULL && slot->stage == STAGE_WAITING);
    *evicted = 0;
    if (is_replayed(gate, ephemeral)) {
        gate->counts.replayed++;
        return GATE_REPLAYED;
    }
    ration = ration_of(gate, slot->prefix, now_ns);
    if (!is_in_ration(gate, ration, is_known, now_ns, &half)) return GATE_SPENT;
    if (!make_room(gate, now_ns, evicted)) return GATE_SPENT;
    ration_take(&ration->full_ns, now_ns, PREFIX_COST_NS);
    ration_take(&gate->half_full_ns[half], now_ns, HALF_COST_NS);
    slot_part(gate, slot);
    slot->stage = STAGE_ANSWERING;
    slot->since_ns = now_ns;
    slot->half = half;
    slot_join(gate, slot);
    gate->counts.answered++;
    if (gate->counts.answering > gate->counts.answering_max) {
        gate->counts.answering_max = gate->counts.answering;
    }
    return GATE_PASS;
}

void gate_leave(struct gate *gate, uint64_t number, bool has_proved, uint64_t now_ns)
{
    struct slot *slot = slot_find(gate, number);

    if (slot == NULL) return;
    if (has_proved && slot->stage == STAGE_ANSWERING) {
        give_back(&ration_of(gate, slot->prefix, now_ns)->full_ns, PREFIX_COST_NS, now_ns);
        give_back(&gate->half_full_ns[slot->half], HALF_COST_NS, now_ns);
        gate->counts.proved++;
    }
    slot_free(gate, slot);
}
