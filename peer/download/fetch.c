/* fetch: see fetch.h. Loop thread. */
#include "peer/download/fetch.h"

#include "base/check.h"
#include "base/mem.h"
#include "peer/times.h"

#include <stdio.h>

enum { AT_ONCE = 4, REDIALS_MAX = 3 };

struct fetched {
    enum inquiry_state state;
    bool has_slot; /* one of AT_ONCE; DIALLING without one: it waits */
    char why[FETCH_WHY_BYTES];
    struct peer_id id;
    struct joiner *joiner;      /* from its status on, until its model is here */
    uint64_t ask_ns;            /* ask then: for its status, or again for its model; UINT64_MAX */
    uint64_t dial_ns;           /* not before; UINT64_MAX: no more */
    uint64_t until_ns;          /* it has its slot until then */
    uint64_t received, buckets; /* bytes; buckets of the model */
    uint32_t dials;
    uint64_t step;
};

struct fetch {
    struct inquiry inquiry; /* first: an inquiry is cast back to it */
    struct fetch_options options;
    struct fetched members[FETCH_MEMBERS_MAX];
    struct outbox outbox; /* what joiners have to say, until the next tick */
    uint64_t moved_ns;    /* when something new was heard */
    bool is_over;
};

static struct fetch *fetch_of(struct inquiry *inquiry)
{
    return (struct fetch *)inquiry;
}

static struct fetched *member_of(struct fetch *f, uint32_t member)
{
    CHECK(member < f->options.members);
    return &f->members[member];
}

static void forget_model(struct fetch *f, struct fetched *m)
{
    if (m->joiner == NULL) return;
    joiner_finish(m->joiner, &f->outbox);
    joiner_destroy(m->joiner);
    m->joiner = NULL;
    f->options.on_gone(f->options.context, (uint32_t)(m - f->members));
}

static void end(struct fetch *f, struct fetched *m, enum inquiry_state state, const char *why)
{
    forget_model(f, m);
    m->state = state;
    m->has_slot = false;
    snprintf(m->why, sizeof m->why, "%s", why);
}

/* ---- links ---- */

static void on_open(struct inquiry *inquiry, uint32_t member, struct peer_id id, uint64_t now_ns)
{
    struct fetch *f = fetch_of(inquiry);
    struct fetched *m = member_of(f, member);

    if (m->state != INQUIRY_DIALLING || !m->has_slot) return;
    m->state = INQUIRY_ASKING;
    m->id = id;
    m->ask_ns = now_ns;
    f->moved_ns = now_ns;
}

static void on_lost(struct inquiry *inquiry, uint32_t member, const char *why, uint64_t now_ns)
{
    struct fetch *f = fetch_of(inquiry);
    struct fetched *m = member_of(f, member);

    if (!m->has_slot) return;
    if (m->joiner != NULL) joiner_on_link_lost(m->joiner, m->id, now_ns, &f->outbox);
    end(f, m, INQUIRY_LOST, why);
    m->dial_ns = m->dials < REDIALS_MAX ? now_ns + POLL_REDIAL_NS : UINT64_MAX;
}

static void drop(struct inquiry *inquiry, uint32_t member)
{
    struct fetch *f = fetch_of(inquiry);

    end(f, member_of(f, member), INQUIRY_REFUSED, "it is one of the others");
}

static uint32_t slots_taken(const struct fetch *f)
{
    uint32_t taken = 0;

    for (uint32_t i = 0; i < f->options.members; i++) {
        taken += f->members[i].has_slot;
    }
    return taken;
}

static bool next_dial(struct inquiry *inquiry, uint64_t now_ns, uint32_t *member)
{
    struct fetch *f = fetch_of(inquiry);

    if (slots_taken(f) == AT_ONCE) return false;
    for (uint32_t i = 0; i < f->options.members; i++) {
        struct fetched *m = &f->members[i];

        if (m->has_slot || (m->state != INQUIRY_DIALLING && m->state != INQUIRY_LOST)) continue;
        if (now_ns < m->dial_ns) continue;
        m->state = INQUIRY_DIALLING;
        m->has_slot = true;
        m->until_ns = now_ns + FETCH_LIFE_NS;
        m->dials++;
        *member = i;
        return true;
    }
    return false;
}

/* ---- what members say ---- */

static void begin_joiner(struct fetch *f, struct fetched *m, uint64_t now_ns)
{
    const enum rc rc =
        joiner_begin(m->joiner, &m->id, 1, (struct digest){{0}}, 0, now_ns, &f->outbox);

    CHECK(rc == RC_OK); /* it is idle, and there is one donor */
}

static enum rc on_status(struct fetch *f, struct fetched *m, const struct message_status *status,
                         uint64_t now_ns, struct fault *why)
{
    const struct schema *schema = NULL;
    struct fault unfit = {""};
    uint32_t want = 0;

    if (m->joiner != NULL || m->ask_ns != UINT64_MAX) return RC_OK; /* nobody asked */
    f->moved_ns = now_ns;
    if (f->options.on_status(f->options.context, (uint32_t)(m - f->members), status->text,
                             status->text_bytes, &schema, &want, &unfit) != RC_OK) {
        end(f, m, INQUIRY_REFUSED, unfit.text);
        return RC_OK;
    }
    m->joiner = joiner_create(schema, f->options.run_id, now_ns);
    if (m->joiner == NULL) {
        f->options.on_gone(f->options.context, (uint32_t)(m - f->members));
        return fault_set(why, RC_NOMEM, "cannot fetch models: out of memory");
    }
    joiner_options(m->joiner)->want = want;
    m->received = 0; /* after a lost link all of it comes again */
    m->buckets = schema->values[SECTION_PARAMETERS] / CHUNK_VALUES + 1;
    m->until_ns = now_ns + FETCH_LIFE_NS + m->buckets * FETCH_BUCKET_NS;
    begin_joiner(f, m, now_ns);
    return RC_OK;
}

/* Nothing is lost by asking again, but where it gives none. */
static void denied(struct fetch *f, struct fetched *m, const struct message_state_deny *deny,
                   uint64_t now_ns)
{
    if (deny->code == REJECT_CLOSED) {
        end(f, m, INQUIRY_REFUSED,
            "it gives its model to members only, or its method keeps it at home; leave --models "
            "out "
            "to ask for predictions");
        return;
    }
    joiner_finish(m->joiner, &f->outbox);
    m->ask_ns = now_ns + POLL_BUSY_NS;
    snprintf(m->why, sizeof m->why, "it was busy with others, or has no model yet");
}

/* The download has moved, or has come to an end. */
static enum rc moved(struct fetch *f, struct fetched *m, enum rc said, uint64_t now_ns,
                     struct fault *why)
{
    const struct joiner_stats stats = joiner_stats(m->joiner);
    const enum joiner_state state = joiner_state(m->joiner);
    enum rc rc;

    if (stats.held_bytes > m->received) f->moved_ns = now_ns;
    m->received = stats.held_bytes;
    if (said == RC_NOMEM) return fault_set(why, said, "cannot fetch models: out of memory");
    if (state == JOINER_FAILED) {
        end(f, m, said == RC_OK ? INQUIRY_LOST : INQUIRY_BAD,
            said == RC_OK ? "it stopped sending"
                          : "what it sends is not the model that it tells of");
        m->dial_ns = UINT64_MAX;
    }
    if (state != JOINER_COMPLETE) return RC_OK;
    m->step = joiner_manifest(m->joiner)->step;
    rc = f->options.on_model(f->options.context, (uint32_t)(m - f->members), m->joiner, why);
    f->moved_ns = now_ns;
    if (rc == RC_FORMAT || rc == RC_NONFINITE) {
        end(f, m, INQUIRY_BAD, "what it sends is no model");
        return RC_OK;
    }
    if (rc == RC_OK) end(f, m, INQUIRY_DONE, "");
    return rc;
}

static enum rc on_message(struct inquiry *inquiry, uint32_t member, const struct message *message,
                          uint64_t now_ns, struct fault *why)
{
    struct fetch *f = fetch_of(inquiry);
    struct fetched *m = member_of(f, member);

    if (m->state != INQUIRY_ASKING) return RC_OK;
    if (message->type == MESSAGE_STATUS) {
        return on_status(f, m, &message->as.status, now_ns, why);
    }
    if (m->joiner == NULL || joiner_state(m->joiner) == JOINER_IDLE) return RC_OK;
    if (message->type == MESSAGE_STATE_DENY) {
        denied(f, m, &message->as.state_deny, now_ns);
        return RC_OK;
    }
    const enum rc said = joiner_on_message(m->joiner, m->id, message, now_ns, &f->outbox);
    return moved(f, m, said, now_ns, why);
}

static enum rc on_data(struct inquiry *inquiry, uint32_t member, const struct inner_header *header,
                       const uint8_t *body, size_t count, uint64_t now_ns, struct fault *why)
{
    struct fetch *f = fetch_of(inquiry);
    struct fetched *m = member_of(f, member);

    if (m->state != INQUIRY_ASKING || m->joiner == NULL) return RC_OK;
    if (header->flags != DATA_STATE || header->offset != 0) return RC_OK;
    const enum rc said = joiner_on_bucket(m->joiner, m->id, header->stream, header->arg, body,
                                          count, now_ns, &f->outbox);
    return moved(f, m, said, now_ns, why);
}

/* ---- time ---- */

static void tick_member(struct fetch *f, struct fetched *m, uint64_t now_ns)
{
    struct message message = {.type = MESSAGE_STATUS_REQ};
    struct fault why;

    if (now_ns >= m->until_ns) {
        end(f, m, INQUIRY_LATE, m->why[0] != '\0' ? m->why : "it is far too slow");
        return;
    }
    if (m->state != INQUIRY_ASKING) return;
    if (now_ns >= m->ask_ns) {
        m->ask_ns = UINT64_MAX;
        if (m->joiner == NULL) {
            outbox_add(&f->outbox, m->id, &message);
        } else {
            begin_joiner(f, m, now_ns);
        }
    }
    if (m->joiner == NULL || joiner_state(m->joiner) == JOINER_IDLE) return;
    joiner_tick(m->joiner, now_ns, &f->outbox);
    const enum rc rc = moved(f, m, RC_OK, now_ns, &why);
    CHECK(rc == RC_OK); /* time completes nothing */
}

/* Who was lost may come back, while others are still at it. */
static bool is_at_it(const struct fetch *f)
{
    bool is_any_done = false, may_return = false;

    for (uint32_t i = 0; i < f->options.members; i++) {
        const struct fetched *m = &f->members[i];

        if (m->has_slot || m->state == INQUIRY_DIALLING) return true;
        is_any_done |= m->state == INQUIRY_DONE;
        may_return |= m->state == INQUIRY_LOST && m->dial_ns != UINT64_MAX;
    }
    return may_return && !is_any_done;
}

static void tick(struct inquiry *inquiry, const struct peer_id *ids, uint64_t now_ns,
                 struct outbox *out)
{
    struct fetch *f = fetch_of(inquiry);
    const struct outbox held = *out;

    (void)ids; /* joiners know theirs */
    for (uint32_t i = 0; i < f->options.members; i++) {
        if (f->members[i].has_slot) tick_member(f, &f->members[i], now_ns);
    }
    f->is_over = !is_at_it(f) || now_ns >= f->moved_ns + f->options.silence_ns;
    CHECK(held.count == 0);
    *out = f->outbox;
    f->outbox = held;
}

static bool is_over(const struct inquiry *inquiry)
{
    return ((const struct fetch *)inquiry)->is_over;
}

static double progress(const struct inquiry *inquiry)
{
    const struct fetch *f = (const struct fetch *)inquiry;
    double done = 0, all = 0;

    for (uint32_t i = 0; i < f->options.members; i++) {
        const struct fetched *m = &f->members[i];

        if (m->state > INQUIRY_DONE) continue;
        all++;
        if (m->state == INQUIRY_DONE) done++;
        if (m->joiner != NULL) done += joiner_stats(m->joiner).progress;
    }
    return all > 0 ? done / all : 0;
}

/* ---- the whole ---- */

static const struct inquiry_ops inquiry_ops = {.on_open = on_open,
                                               .on_lost = on_lost,
                                               .drop = drop,
                                               .on_message = on_message,
                                               .on_data = on_data,
                                               .tick = tick,
                                               .next_dial = next_dial,
                                               .is_over = is_over,
                                               .progress = progress};

struct fetch *fetch_create(const struct fetch_options *options, uint64_t now_ns)
{
    struct fetch *f = mem_alloc(sizeof *f);

    CHECK(options->members > 0 && options->members <= FETCH_MEMBERS_MAX);
    if (f == NULL) return NULL;
    f->inquiry.ops = &inquiry_ops;
    f->options = *options;
    f->moved_ns = now_ns;
    outbox_init(&f->outbox);
    return f;
}

void fetch_destroy(struct fetch *fetch)
{
    if (fetch == NULL) return;
    for (uint32_t i = 0; i < fetch->options.members; i++) {
        forget_model(fetch, &fetch->members[i]);
    }
    outbox_deinit(&fetch->outbox);
    mem_free(fetch);
}

struct inquiry *fetch_inquiry(struct fetch *fetch)
{
    return &fetch->inquiry;
}

void fetch_view(const struct fetch *fetch, uint32_t member, struct fetch_view *view)
{
    const struct fetched *m = &fetch->members[member];

    CHECK(member < fetch->options.members);
    *view = (struct fetch_view){.state = m->state, .why = m->why, .step = m->step};
    if (m->state == INQUIRY_DONE) view->why = NULL;
    if (m->state == INQUIRY_ASKING) view->why = m->why[0] != '\0' ? m->why : "it fell silent";
    if (m->state == INQUIRY_DIALLING) view->why = "it did not answer the call";
}
