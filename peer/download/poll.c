/* poll: see poll.h. Loop thread. */
#include "peer/download/poll.h"

#include "base/check.h"
#include "base/mem.h"
#include "peer/times.h"

enum { STRAYS_MAX = 16, REDIALS_MAX = 3, PATIENCE = 8 };

struct polled {
    enum inquiry_state state;
    const char *why;
    uint32_t window, at; /* the next slice: of which window, from where on */
    bool is_asked;
    uint32_t most;    /* samples that were asked for */
    uint64_t ask_ns;  /* not before */
    uint64_t dial_ns; /* LOST: dial again then; UINT64_MAX: no more */
    uint32_t put_off; /* the window for which it asked for time, plus 1: once before each answer */
    uint32_t dials, strays;
    uint64_t step;
};

struct poll {
    struct inquiry inquiry; /* first: an inquiry is cast back to it */
    struct poll_options options;
    uint32_t slice;   /* samples asked for at a time */
    uint32_t dialled; /* members, a first time */
    uint64_t begun_ns, half_ns, moved_ns;
    struct polled members[PANEL_MEMBERS_MAX];
    bool is_over;
};

static const struct inquiry_ops inquiry_ops;

struct poll *poll_create(const struct poll_options *options, uint64_t now_ns)
{
    struct poll *p = mem_alloc(sizeof *p);
    const size_t fits = PREDICTIONS_BYTES_MAX / predictions_bytes(&options->shape);

    CHECK(options->members > 0 && options->members <= PANEL_MEMBERS_MAX);
    CHECK(options->samples > 0 && options->window > 0 && fits > 0);
    if (p == NULL) return NULL;
    p->inquiry.ops = &inquiry_ops;
    p->options = *options;
    p->slice = fits < options->window ? (uint32_t)fits : options->window;
    p->begun_ns = p->moved_ns = now_ns;
    return p;
}

void poll_destroy(struct poll *poll)
{
    mem_free(poll);
}

static struct polled *member_of(struct poll *p, uint32_t member)
{
    CHECK(member < p->options.members);
    return &p->members[member];
}

static bool is_there(const struct polled *m)
{
    return m->state == INQUIRY_ASKING || m->state == INQUIRY_DONE;
}

/* Something new was heard; it may be known already that nothing will be for a while. */
static void moved(struct poll *p, uint64_t now_ns)
{
    if (now_ns > p->moved_ns) p->moved_ns = now_ns;
}

void poll_on_open(struct poll *poll, uint32_t member, uint64_t now_ns)
{
    struct polled *m = member_of(poll, member);

    if (m->state != INQUIRY_DIALLING && m->state != INQUIRY_LOST) return;
    m->state = INQUIRY_ASKING;
    m->why = NULL;
    m->is_asked = false;
    m->ask_ns = now_ns;
    moved(poll, now_ns);
}

void poll_on_lost(struct poll *poll, uint32_t member, const char *why, uint64_t now_ns)
{
    struct polled *m = member_of(poll, member);

    if (m->state != INQUIRY_DIALLING && m->state != INQUIRY_ASKING && m->state != INQUIRY_LOST)
        return;
    m->state = INQUIRY_LOST;
    m->why = why;
    m->dial_ns = m->dials++ < REDIALS_MAX ? now_ns + POLL_REDIAL_NS : UINT64_MAX;
}

void poll_drop(struct poll *poll, uint32_t member)
{
    struct polled *m = member_of(poll, member);

    m->state = INQUIRY_REFUSED;
    m->why = "it is one of the others";
}

/* ---- answers ---- */

static void end(struct polled *m, enum inquiry_state state, const char *why)
{
    m->state = state;
    m->why = why;
    m->is_asked = false;
}

static void bad(struct poll *p, uint32_t member, const char *why)
{
    panel_forget(p->options.panel, member);
    end(&p->members[member], INQUIRY_BAD, why);
}

/* It needs time before its first answer to a window: silence until then means nothing. */
static void put_off(struct poll *p, struct polled *m, uint32_t wait_ms, uint64_t now_ns)
{
    const uint64_t wait_ns = (uint64_t)wait_ms * NS_PER_MS;
    const uint64_t until_ns = now_ns + (wait_ns < POLL_LATER_NS ? wait_ns : POLL_LATER_NS);

    if (m->put_off == m->window + 1) return;
    m->put_off = m->window + 1;
    if (until_ns > p->moved_ns) p->moved_ns = until_ns;
}

static void refused(struct poll *p, struct polled *m, const struct message_predictions *answer,
                    uint64_t now_ns)
{
    switch (answer->code) {
    case PREDICTIONS_LATER:
        put_off(p, m, answer->wait_ms, now_ns);
        break;
    case PREDICTIONS_OTHER_DATA:
        end(m, INQUIRY_REFUSED, "it has other data than the probe set");
        break;
    case PREDICTIONS_CLOSED:
        end(m, INQUIRY_REFUSED, "it gives no predictions");
        break;
    case PREDICTIONS_TOO_LARGE:
        end(m, INQUIRY_REFUSED, "the probe set is too large for it");
        break;
    default: /* busy: again in a while */
        m->is_asked = false;
        m->ask_ns = now_ns + POLL_BUSY_NS;
    }
}

static uint32_t window_samples(const struct poll *p, uint32_t window)
{
    const uint32_t first = window * p->options.window, left = p->options.samples - first;

    return left < p->options.window ? left : p->options.window;
}

static void advance(struct poll *p, struct polled *m, uint32_t count, uint64_t now_ns)
{
    m->at += count;
    if (m->at == window_samples(p, m->window)) {
        m->at = 0;
        m->window++;
    }
    m->is_asked = false;
    m->ask_ns = now_ns;
    m->put_off = 0;
    moved(p, now_ns);
    if ((uint64_t)m->window * p->options.window >= p->options.samples) m->state = INQUIRY_DONE;
}

enum rc poll_on_answer(struct poll *poll, uint32_t member, const struct message_predictions *answer,
                       uint64_t now_ns, struct fault *why)
{
    struct polled *m = member_of(poll, member);
    const uint32_t first = m->window * poll->options.window;
    enum rc rc;

    if (m->state != INQUIRY_ASKING && m->state != INQUIRY_DONE)
        return RC_OK; /* it counts no more */
    if (!m->is_asked || answer->first != first || answer->at != m->at) {
        if (++m->strays > STRAYS_MAX) bad(poll, member, "it sends what nobody asked for");
        return RC_OK;
    }
    if (answer->code != PREDICTIONS_HERE) {
        refused(poll, m, answer, now_ns);
        return RC_OK;
    }
    if (answer->count == 0 || answer->count > m->most ||
        answer->values_bytes != answer->count * predictions_bytes(&poll->options.shape)) {
        bad(poll, member, "it answered more, or less, than it was asked");
        return RC_OK;
    }
    rc = panel_put(poll->options.panel, member, first + m->at, answer->count, answer->values, why);
    if (rc == RC_FORMAT || rc == RC_NONFINITE) {
        bad(poll, member, "its answers are no probabilities");
        return RC_OK;
    }
    if (rc != RC_OK) return rc;
    m->step = answer->step;
    advance(poll, m, answer->count, now_ns);
    return RC_OK;
}

/* ---- questions ---- */

static void ask(const struct poll *p, struct polled *m, struct message *message)
{
    const uint32_t count = window_samples(p, m->window), left = count - m->at;

    m->is_asked = true;
    m->most = left < p->slice ? left : p->slice;
    *message = (struct message){.type = MESSAGE_PROBE};
    message->as.probe.seed = p->options.seed;
    message->as.probe.first = m->window * p->options.window;
    message->as.probe.count = count;
    message->as.probe.digest = p->options.digests[m->window];
    message->as.probe.at = m->at;
    message->as.probe.most = m->most;
    message->as.probe.top = p->options.shape.top;
}

bool poll_next_question(struct poll *poll, uint64_t now_ns, uint32_t *member,
                        struct message *message)
{
    for (uint32_t i = 0; i < poll->options.members; i++) {
        struct polled *m = &poll->members[i];

        if (m->state != INQUIRY_ASKING || now_ns < m->ask_ns) continue;
        ask(poll, m, message);
        m->ask_ns = now_ns + OBSERVER_KEEP_NS; /* so that it knows us to be there */
        *member = i;
        return true;
    }
    return false;
}

bool poll_next_dial(struct poll *poll, uint64_t now_ns, uint32_t *member)
{
    for (uint32_t i = 0; i < poll->options.members; i++) {
        struct polled *m = &poll->members[i];

        if (m->state != INQUIRY_LOST || now_ns < m->dial_ns) continue;
        m->dial_ns = UINT64_MAX; /* until that fails */
        *member = i;
        return true;
    }
    return false;
}

/* ---- the end ---- */

static void count_there(const struct poll *p, uint32_t *there, uint32_t *done, uint32_t *dialling)
{
    *there = *done = *dialling = 0;
    for (uint32_t i = 0; i < p->options.members; i++) {
        *there += is_there(&p->members[i]);
        *done += p->members[i].state == INQUIRY_DONE;
        *dialling += p->members[i].state == INQUIRY_DIALLING;
    }
}

/* So many answers bound what `trim` liars can do. */
static uint32_t answers_wanted(const struct poll *p)
{
    return 2 * p->options.trim + 1;
}

/* Half are done: have the others had their time? */
static bool is_late(const struct poll *p, uint64_t now_ns)
{
    const uint64_t half_ns = p->half_ns - p->begun_ns, since_ns = now_ns - p->half_ns;
    const uint64_t took_ns = half_ns > POLL_LEAST_NS ? half_ns : POLL_LEAST_NS;

    if (p->half_ns == 0 || since_ns <= took_ns) return false;
    return since_ns > PATIENCE * took_ns ||
           panel_covered(p->options.panel, answers_wanted(p)) == p->options.samples;
}

static void give_up_rest(struct poll *p)
{
    for (uint32_t i = 0; i < p->options.members; i++) {
        struct polled *m = &p->members[i];

        if (m->state == INQUIRY_ASKING) end(m, INQUIRY_LATE, "it is much slower than the others");
    }
}

void poll_tick(struct poll *poll, uint64_t now_ns)
{
    uint32_t there, done, dialling, waiting = 0;

    count_there(poll, &there, &done, &dialling);
    for (uint32_t i = 0; i < poll->options.members; i++) {
        const struct polled *m = &poll->members[i];
        waiting += m->state == INQUIRY_LOST && m->dials <= REDIALS_MAX && there == 0;
    }
    if (done > 0 && 2 * done >= there && poll->half_ns == 0) poll->half_ns = now_ns;
    if (2 * done < there) poll->half_ns = 0; /* somebody came back */
    if (is_late(poll, now_ns)) give_up_rest(poll);
    if (now_ns >= poll->moved_ns + poll->options.silence_ns) {
        poll->is_over = true;
        return;
    }
    count_there(poll, &there, &done, &dialling);
    poll->is_over = there == done && dialling == 0 && (done > 0 || waiting == 0);
}

bool poll_is_over(const struct poll *poll)
{
    return poll->is_over;
}

double poll_progress(const struct poll *poll)
{
    double answered = 0, all = 0;

    for (uint32_t i = 0; i < poll->options.members; i++) {
        if (!is_there(&poll->members[i])) continue;
        answered += (double)panel_answered(poll->options.panel, i);
        all += (double)poll->options.samples;
    }
    return all > 0 ? answered / all : 0;
}

void poll_view(const struct poll *poll, uint32_t member, struct poll_view *view)
{
    const struct polled *m = &poll->members[member];

    *view = (struct poll_view){.state = m->state,
                               .why = m->why,
                               .answered = (uint32_t)panel_answered(poll->options.panel, member),
                               .step = m->step};
    if (m->state == INQUIRY_ASKING) view->why = "it fell silent";
    if (m->state == INQUIRY_DIALLING) view->why = "it did not answer the call";
}

uint32_t poll_usable(const struct poll *poll)
{
    uint32_t there = 0, heard = 0, wanted = answers_wanted(poll);

    for (uint32_t i = 0; i < poll->options.members; i++) {
        const size_t answered = panel_answered(poll->options.panel, i);
        const bool is_half = 2 * answered >= poll->options.samples;
        heard += answered > 0;
        there += is_half || (answered > 0 && poll->members[i].state == INQUIRY_ASKING);
    }
    if (there == 0) there = heard;
    if (there == 0) return 0;
    if (there < wanted) wanted = (there + 1) / 2;
    return (uint32_t)panel_covered(poll->options.panel, wanted);
}

/* ---- as an inquiry ---- */

static struct poll *poll_of(struct inquiry *inquiry)
{
    return (struct poll *)inquiry;
}

static void on_open(struct inquiry *inquiry, uint32_t member, struct peer_id id, uint64_t now_ns)
{
    (void)id;
    poll_on_open(poll_of(inquiry), member, now_ns);
}

static void on_lost(struct inquiry *inquiry, uint32_t member, const char *why, uint64_t now_ns)
{
    poll_on_lost(poll_of(inquiry), member, why, now_ns);
}

static void drop(struct inquiry *inquiry, uint32_t member)
{
    poll_drop(poll_of(inquiry), member);
}

static enum rc on_message(struct inquiry *inquiry, uint32_t member, const struct message *message,
                          uint64_t now_ns, struct fault *why)
{
    if (message->type != MESSAGE_PREDICTIONS) return RC_OK;
    return poll_on_answer(poll_of(inquiry), member, &message->as.predictions, now_ns, why);
}

static void tick(struct inquiry *inquiry, const struct peer_id *ids, uint64_t now_ns,
                 struct outbox *out)
{
    struct message message;
    uint32_t member;

    poll_tick(poll_of(inquiry), now_ns);
    if (poll_of(inquiry)->is_over) return;
    while (poll_next_question(poll_of(inquiry), now_ns, &member, &message)) {
        outbox_add(out, ids[member], &message);
    }
}

static bool next_dial(struct inquiry *inquiry, uint64_t now_ns, uint32_t *member)
{
    struct poll *p = poll_of(inquiry);

    if (p->dialled == p->options.members) return poll_next_dial(p, now_ns, member);
    *member = p->dialled++;
    return true;
}

static bool is_over(const struct inquiry *inquiry)
{
    return poll_is_over((const struct poll *)inquiry);
}

static double progress(const struct inquiry *inquiry)
{
    return poll_progress((const struct poll *)inquiry);
}

static const struct inquiry_ops inquiry_ops = {.on_open = on_open,
                                               .on_lost = on_lost,
                                               .drop = drop,
                                               .on_message = on_message,
                                               .tick = tick,
                                               .next_dial = next_dial,
                                               .is_over = is_over,
                                               .progress = progress};

struct inquiry *poll_inquiry(struct poll *poll)
{
    return &poll->inquiry;
}
