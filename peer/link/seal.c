/*
 * Records of bulk connections: sealed and opened in the sealing lanes, so that neither the loop nor
 * the exchange waits for the cipher. The loop hands out the numbers; a lane is a queue, so records
 * of one direction come back in the order in which they left. Small ones are not worth the way and
 * are done at once, unless they would overtake others; on one or two processors chunks are not,
 * either (links_quick_bytes()).
 *
 *   DATA -> seal job -> env                env -> open job -> barrier -> node
 *
 * The barrier: a record says how many control records were sent before it (`after`), and waits
 * until so many have been read. So DATA is never read before the message that announces it, as if
 * both had come over one connection. Control may overtake DATA; DATA never overtakes DATA.
 *
 * Bounds: LINK_SEALING_BYTES_MAX of a connection are being sealed, and while LINK_OPENING_MAX
 * records are being opened or wait nothing is read from it; while LINK_HELD_BYTES_MAX of all
 * connections are, one record of each. Loop thread, but for the run functions.
 */
#include "peer/link/internal.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/mem.h"

enum { COPIED_BYTES_MAX = 16 * 1024 }; /* shorter ones lie in a buffer with others */
#define SEAL_NS_PER_KILOBYTE 450       /* modelled */

struct seal_job {
    struct job job; /* first: jobs are cast back */
    TAILQ_ENTRY(seal_job) siblings;
    struct links *links;
    struct bulk *bulk;
    uint64_t number;
    uint8_t head[INNER_HEADER_BYTES]; /* sealing */
    struct blob *body;                /* sealing; the frame's tail */
    struct blob *frame;
    const uint8_t *inner; /* opening: points into frame */
    size_t inner_count;
    size_t held_bytes; /* counted in links; opening */
    enum rc rc;
};

/* Not worth the way to a lane and back. */
static bool is_quick(const struct links *links, const struct sealer *sealer, size_t bytes)
{
    return bytes <= links->options.quick_bytes || sealer_is_clear(sealer);
}

size_t links_quick_bytes(void)
{
    return cpu_cores() <= 2 ? LINK_QUICK_BYTES_FEW : LINK_QUICK_BYTES;
}

static struct seal_job *seal_job_create(struct links *links, struct bulk *bulk, size_t bytes)
{
    struct seal_job *job = mem_alloc(sizeof *job);

    if (job == NULL) return NULL;
    job->links = links;
    job->bulk = bulk;
    job->job.cost_ns = (uint64_t)bytes * SEAL_NS_PER_KILOBYTE / 1000 + 1;
    job->job.partner = trace_partner(bulk->link->peer);
    return job;
}

static void seal_job_free(struct seal_job *job)
{
    blob_unref(job->body);
    blob_unref(job->frame);
    mem_free(job);
}

static void seal_job_submit(struct seal_job *job, enum lane lane)
{
    struct links *links = job->links;

    TAILQ_INSERT_TAIL(&links->seals, job, siblings);
    job->bulk->jobs++;
    links->jobs_count++;
    links->options.env->ops->submit(links->options.env, lane, &job->job);
}

/* Off the list; frees the connection if this was what it waited for. NULL: it is gone. */
static struct bulk *seal_job_back(struct seal_job *job)
{
    struct links *links = job->links;
    struct bulk *bulk = job->bulk;

    TAILQ_REMOVE(&links->seals, job, siblings);
    CHECK(bulk->jobs > 0 && links->jobs_count > 0);
    links->jobs_count--;
    links->held_bytes -= job->held_bytes;
    bulk->jobs--;
    if (bulk->link != NULL) return bulk;
    if (bulk->jobs == 0) {
        TAILQ_REMOVE(&links->bulks_gone, bulk, siblings);
        bulk_free(bulk);
    }
    return NULL;
}

static void worked(struct links *links)
{
    if (links->events.on_work != NULL) links->events.on_work(links->events.context);
}

void links_seals_clear(struct links *links)
{
    struct seal_job *job;

    while ((job = TAILQ_FIRST(&links->seals)) != NULL) {
        (void)seal_job_back(job);
        seal_job_free(job);
    }
}

/* What a lane would do, done on the loop since `begin_ns`. */
static void trace_here(const struct links *links, const char *name, const struct link *link,
                       uint64_t begin_ns)
{
    const struct tracer *tracer = links->options.env->tracer;

    if (tracer == NULL) return;
    trace_span(tracer, TRACE_LOOP, TRACE_LOOP,
               &(struct trace_span){.name = name,
                                    .begin_ns = begin_ns,
                                    .end_ns = link_now(links),
                                    .round = tracer->round,
                                    .partner = trace_partner(link->peer)});
}

/* ---- sealing ---- */

static enum rc frame_to_env(struct links *links, struct bulk *bulk, struct blob *frame)
{
    enum rc rc = links->options.env->ops->send(links->options.env, bulk->number, frame);

    if (rc != RC_OK) return rc;
    bulk->link->bytes_sent += frame->count;
    links->counts.bytes_sent += frame->count;
    return RC_OK;
}

enum rc bulk_send_frame(struct links *links, struct bulk *bulk, const uint8_t *bytes, size_t count)
{
    struct blob *frame = blob_copy(bytes, count);
    enum rc rc;

    if (frame == NULL) return RC_NOMEM;
    rc = frame_to_env(links, bulk, frame);
    blob_unref(frame);
    return rc;
}

/* Send what is sealed, oldest first, as far as the env takes it. */
static void bulk_flush(struct links *links, struct bulk *bulk)
{
    while (bulk->sealed.count > 0) {
        struct blob *frame = frame_queue_first(&bulk->sealed);

        if (link_frame_stays(links, bulk->link, frame_to_env(links, bulk, frame))) return;
        blob_unref(frame_queue_pop(&bulk->sealed));
    }
}

void bulks_flush(struct links *links, struct link *link)
{
    struct bulk *bulk;

    TAILQ_FOREACH (bulk, &link->bulks, of_link) {
        if (bulk->sealed.count == 0) continue;
        bulk_flush(links, bulk);
        if (bulk->has_left) (void)bulk_leave(links, bulk);
    }
}

/* Takes the reference. */
static void bulk_sealed(struct links *links, struct bulk *bulk, struct blob *frame)
{
    bulk_flush(links, bulk);
    if (bulk->is_torn || (bulk->sealed.count == 0 &&
                          !link_frame_stays(links, bulk->link, frame_to_env(links, bulk, frame)))) {
        blob_unref(frame); /* sent, or the connection is gone */
        return;
    }
    if (frame_queue_push(&bulk->sealed, frame) == RC_OK) return;
    blob_unref(frame);
    bulk->is_torn = true;        /* what follows it would be taken for a forgery */
    link_cut(links, bulk->link); /* its number is spent */
}

static void run_seal(struct job *base)
{
    struct seal_job *job = (struct seal_job *)base;

    sealer_seal(job->bulk->send, job->number, job->head, sizeof job->head, job->body->bytes,
                job->body->count, job->frame->bytes);
}

static void seal_done(struct job *base)
{
    struct seal_job *job = (struct seal_job *)base;
    struct links *links = job->links;
    struct bulk *bulk = seal_job_back(job);
    struct link *link = bulk == NULL ? NULL : bulk->link;

    if (bulk != NULL) {
        link_touch(links, link);
        bulk->jobs_sealing--;
        bulk->sealing_bytes -= job->frame->count;
        bulk_sealed(links, bulk, job->frame);
        job->frame = NULL;
        if (bulk->has_left) (void)bulk_leave(links, bulk); /* that was the last one */
    }
    seal_job_free(job);
    if (link != NULL) link_resume(links, link);
    worked(links);
}

/* Where nothing is sealed the body is sent from where it is. False: no memory, nothing was sent. */
static bool send_clear(struct links *links, struct bulk *bulk, const uint8_t *head,
                       struct blob *body)
{
    struct blob *before = blob_create(RECORD_HEADER_BYTES + INNER_HEADER_BYTES);
    struct blob *after = blob_create(RECORD_TAG_BYTES);

    if (before == NULL || after == NULL) {
        blob_unref(before);
        blob_unref(after);
        return false;
    }
    sealer_frame_clear(bulk->send, INNER_HEADER_BYTES + body->count, before->bytes, after->bytes);
    memcpy(before->bytes + RECORD_HEADER_BYTES, head, INNER_HEADER_BYTES);
    bulk_sealed(links, bulk, before);
    bulk_sealed(links, bulk, blob_ref(body));
    bulk_sealed(links, bulk, after);
    return true;
}

bool bulk_has_room(const struct bulk *bulk)
{
    return bulk->sealed.count == 0 && bulk->sealing_bytes < LINK_SEALING_BYTES_MAX;
}

bool bulk_is_sending(const struct bulk *bulk)
{
    return bulk->sealed.count > 0 || bulk->jobs_sealing > 0;
}

bool bulk_send(struct links *links, struct bulk *bulk, const struct inner_header *header,
               struct blob *body)
{
    size_t bytes = secure_record_bytes(INNER_HEADER_BYTES + body->count);
    struct inner_header numbered;
    uint8_t head[INNER_HEADER_BYTES];
    struct seal_job *job;
    uint64_t number;
    bool is_sent;

    if (bulk->sent >= links->options.rekey.records * 2) {
        link_cut(links, bulk->link); /* the keys are used up */
        return false;
    }
    if (INNER_HEADER_BYTES + body->count > BULK_BYTES_MAX) {
        bulk->link->is_closing = true; /* no record can hold it */
        return false;
    }
    numbered = *header;
    numbered.after = bulk->link->control_queued;
    inner_header_encode(&numbered, head);
    is_sent = sealer_is_clear(bulk->send) && body->count > COPIED_BYTES_MAX &&
              send_clear(links, bulk, head, body);
    job = is_sent ? NULL : seal_job_create(links, bulk, body->count);
    if (job != NULL) job->frame = blob_create(bytes);
    if (!is_sent && (job == NULL || job->frame == NULL)) {
        mem_free(job);
        return false;
    }
    bulk->used_ns = link_now(links);
    number = bulk->sent++;
    bulk_has_sent(links, bulk, header);
    bulk->link->is_used = true;
    bulk->link->epoch_bytes += bytes;
    if (is_sent) return true;
    job->body = blob_ref(body);
    job->number = number;
    memcpy(job->head, head, sizeof head);
    if (is_quick(links, bulk->send, bytes) && bulk->jobs_sealing == 0) {
        run_seal(&job->job);
        trace_here(links, "seal", bulk->link, bulk->used_ns);
        bulk_sealed(links, bulk, job->frame);
        job->frame = NULL;
        seal_job_free(job);
        return true;
    }
    job->job.name = "seal";
    job->job.run = run_seal;
    job->job.done = seal_done;
    bulk->jobs_sealing++;
    bulk->sealing_bytes += bytes;
    seal_job_submit(job, LANE_SEALING);
    return true;
}

bool bulk_send_fin(struct links *links, struct bulk *bulk)
{
    struct message message = {.type = MESSAGE_FIN};
    uint8_t inner[INNER_HEADER_BYTES + 16];
    struct blob *frame;
    size_t count;

    CHECK(bulk->jobs_sealing == 0);
    CHECK(message_encode(&message, inner, sizeof inner, &count) == RC_OK);
    frame = blob_create(secure_record_bytes(count));
    if (frame == NULL) return false;
    sealer_seal(bulk->send, bulk->sent++, inner, count, NULL, 0, frame->bytes);
    bulk_sealed(links, bulk, frame);
    return true;
}

void bulk_on_drain(struct links *links, struct bulk *bulk)
{
    link_touch(links, bulk->link);
    bulk_flush(links, bulk);
    if (bulk->has_left) (void)bulk_leave(links, bulk);
    link_resume(links, bulk->link);
}

/* ---- opening ---- */

/* Opened, and its turn to be read has not come: the bytes behind `inner` are in `frame`. */
struct waiting {
    TAILQ_ENTRY(waiting) siblings;
    struct inner_header header;
    struct blob *frame;
    const uint8_t *body;
    size_t count;
};

static struct waiting *waiting_take(struct links *links, struct bulk *bulk)
{
    struct waiting *waiting = TAILQ_FIRST(&bulk->waiting);

    if (waiting == NULL) return NULL;
    TAILQ_REMOVE(&bulk->waiting, waiting, siblings);
    bulk->waiting_count--;
    links->held_bytes -= waiting->frame->count;
    return waiting;
}

void bulk_waiting_clear(struct links *links, struct bulk *bulk)
{
    struct waiting *waiting;

    while ((waiting = waiting_take(links, bulk)) != NULL) {
        blob_unref(waiting->frame);
        mem_free(waiting);
    }
}

/* One record of each may always be read, so that a few members cannot stop the others, and whoever
 * is stopped has a record whose end comes here again. */
static void bulk_balance(struct links *links, struct bulk *bulk)
{
    uint32_t max = links->held_bytes >= LINK_HELD_BYTES_MAX ? 1 : LINK_OPENING_MAX;
    uint32_t held = bulk->jobs_opening + bulk->waiting_count;
    bool is_full = held >= max;

    if (is_full == bulk->is_paused) return;
    if (bulk->is_paused && held > max / 2) return; /* not stop and go for each record */
    bulk->is_paused = is_full;
    links->options.env->ops->link_pause(links->options.env, bulk->number, is_full);
}

static bool is_early(const struct link *link, const struct inner_header *header)
{
    return (int32_t)(header->after - link->control_received) > 0;
}

/* To the node; afterwards the connection may be gone. `frame` holds the body, or is NULL. */
static void bulk_read(struct links *links, struct bulk *bulk, const struct inner_header *header,
                      struct blob *frame, const uint8_t *body, size_t count)
{
    struct peer_id peer = bulk->link->peer;
    uint64_t number = bulk->number;

    if (header->type == MESSAGE_FIN) {
        bulk_on_fin(links, bulk);
        return;
    }
    link_heard(links, peer);
    if (bulk_find(links, number) == NULL) return;
    links->data_frame = frame;
    link_data(links, peer, header, body, count);
    links->data_frame = NULL;
}

struct blob *links_data_keep(const struct links *links)
{
    return links->data_frame == NULL ? NULL : blob_ref(links->data_frame);
}

/* `frame` holds what `inner` points to; NULL: it is gone after this call. */
static void bulk_opened_record(struct links *links, struct bulk *bulk, struct blob *frame,
                               const uint8_t *inner, size_t inner_count)
{
    struct link *link = bulk->link;
    struct inner_header header;
    struct waiting *waiting;
    enum rc rc = inner_header_decode(inner, inner_count, &header);

    if (rc == RC_OK && header.type != MESSAGE_DATA && header.type != MESSAGE_FIN) rc = RC_FORMAT;
    if (rc != RC_OK) {
        link_violated(links, link);
        bulk_refused(links, bulk, rc);
        return;
    }
    if (!is_early(link, &header) && TAILQ_EMPTY(&bulk->waiting)) {
        bulk_read(links, bulk, &header, frame, inner + INNER_HEADER_BYTES,
                  inner_count - INNER_HEADER_BYTES);
        return;
    }
    waiting = mem_alloc(sizeof *waiting);
    if (waiting != NULL) waiting->frame = frame != NULL ? blob_ref(frame) : NULL;
    if (waiting != NULL && frame == NULL) waiting->frame = blob_copy(inner, inner_count);
    if (waiting == NULL || waiting->frame == NULL) {
        mem_free(waiting);
        link_cut(links, link);
        return;
    }
    waiting->header = header;
    waiting->body = (frame != NULL ? inner : waiting->frame->bytes) + INNER_HEADER_BYTES;
    waiting->count = inner_count - INNER_HEADER_BYTES;
    if (TAILQ_EMPTY(&bulk->waiting)) bulk->waiting_ns = link_now(links) + LINK_ORDER_NS;
    TAILQ_INSERT_TAIL(&bulk->waiting, waiting, siblings);
    bulk->waiting_count++;
    links->held_bytes += waiting->frame->count;
    bulk_balance(links, bulk);
}

/* One record whose turn has come. False: there is none. */
static bool bulk_release(struct links *links, struct bulk *bulk)
{
    struct waiting *waiting = TAILQ_FIRST(&bulk->waiting);

    if (waiting == NULL || is_early(bulk->link, &waiting->header)) return false;
    (void)waiting_take(links, bulk);
    bulk->waiting_ns = link_now(links) + LINK_ORDER_NS;
    bulk_balance(links, bulk);
    bulk_read(links, bulk, &waiting->header, waiting->frame, waiting->body, waiting->count);
    blob_unref(waiting->frame);
    mem_free(waiting);
    return true;
}

void bulks_release(struct links *links, uint64_t link_number)
{
    const struct link *link;
    struct bulk *bulk;

again: /* the node may have done anything meanwhile */
    link = link_find(links, link_number);
    if (link == NULL) return;
    TAILQ_FOREACH (bulk, &link->bulks, of_link) {
        if (bulk_release(links, bulk)) goto again;
    }
}

static void run_open(struct job *base)
{
    struct seal_job *job = (struct seal_job *)base;

    job->rc = sealer_open(job->bulk->receive, job->number, job->frame->bytes, job->frame->count,
                          &job->inner, &job->inner_count);
}

static void open_done(struct job *base)
{
    struct seal_job *job = (struct seal_job *)base;
    struct links *links = job->links;
    struct bulk *bulk = seal_job_back(job);

    if (bulk != NULL) {
        uint64_t number = bulk->number;

        link_touch(links, bulk->link);
        bulk->jobs_opening--;
        if (job->rc == RC_OK) {
            bulk_opened_record(links, bulk, job->frame, job->inner, job->inner_count);
        } else {
            bulk_refused(links, bulk, job->rc);
        }
        bulk = bulk_find(links, number);
        if (bulk != NULL) bulk_balance(links, bulk);
    }
    seal_job_free(job);
    worked(links);
}

/* What holds the frame that is being read, if the env lets it be kept. */
static struct blob *frame_kept(struct links *links, const struct bulk *bulk)
{
    const struct env_ops *ops = links->options.env->ops;

    if (ops->frame_keep == NULL) return NULL;
    return ops->frame_keep(links->options.env, bulk->number);
}

/* The frame as a blob of its own. */
static struct blob *frame_take(struct links *links, const struct bulk *bulk, const uint8_t *frame,
                               size_t count)
{
    struct blob *blob = frame_kept(links, bulk);

    if (blob == NULL) return blob_copy(frame, count);
    CHECK(blob->bytes == frame && blob->count == count);
    return blob;
}

void bulk_open_record(struct links *links, struct bulk *bulk, uint8_t *frame, size_t count)
{
    const uint8_t *inner;
    size_t inner_count;
    struct seal_job *job;
    uint64_t begin_ns;
    enum rc rc;

    if (bulk->received >= links->options.rekey.records * 2) {
        bulk_refused(links, bulk, RC_LIMIT);
        return;
    }
    bulk->link->is_used = true;
    bulk->link->epoch_bytes += count;
    if (is_quick(links, bulk->receive, count) && bulk->jobs_opening == 0) {
        struct blob *kept = count <= COPIED_BYTES_MAX ? NULL : frame_kept(links, bulk);

        begin_ns = link_now(links);
        rc = sealer_open(bulk->receive, bulk->received++, frame, count, &inner, &inner_count);
        trace_here(links, "open", bulk->link, begin_ns);
        if (rc != RC_OK) {
            bulk_refused(links, bulk, rc);
        } else {
            bulk_opened_record(links, bulk, kept, inner, inner_count);
        }
        blob_unref(kept);
        return;
    }
    job = seal_job_create(links, bulk, count);
    if (job != NULL) job->frame = frame_take(links, bulk, frame, count);
    if (job == NULL || job->frame == NULL) {
        mem_free(job);
        link_cut(links, bulk->link);
        return;
    }
    job->number = bulk->received++;
    job->job.name = "open";
    job->job.run = run_open;
    job->job.done = open_done;
    bulk->jobs_opening++;
    job->held_bytes = count;
    links->held_bytes += count;
    seal_job_submit(job, LANE_OPENING);
    bulk_balance(links, bulk);
}
