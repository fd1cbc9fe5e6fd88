/*
 * What the live model says of samples, for others who ask (PROBE): observers that distil a student
 * out of a running swarm. Neither weights nor data leave this peer.
 *
 * An asker names a window of the training samples by a seed; the window is loaded, compared by its
 * digest, and then answered slice by slice, each on request, which bounds what is queued to one
 * slice an asker. All of it together has ANSWER_SHARE of the training time: a slice is short, and
 * after it training goes on until its time is earned again. At the goal nothing is slowed, and
 * slices follow one another. Loop thread, but for the run function.
 */
#include "peer/node/lane/internal.h"

#include "gossip/flow/ration.h"
#include "replica/data/dataset.h"

enum {
    ANSWER_SHARE = 28,       /* one part in so many: 3.6 % */
    ANSWER_VALUES = 1 << 20, /* float32 of a slice, at most; of one sample more */
    ANSWER_TOP_MAX = 64,     /* of the likeliest that may be asked for */
    ANSWER_FIRST = 8         /* samples of the first slice: what one takes is not known yet */
};

static struct predictions_shape shape_of(const struct answer_shape *shape, uint32_t top)
{
    return (struct predictions_shape){.rows = shape->rows,
                                      .outputs = shape->outputs,
                                      .top = shape->is_real ? 0 : top,
                                      .is_real = shape->is_real};
}

static void refuse(struct node *node, struct peer_id to, const struct message_probe *probe,
                   enum predictions_code code)
{
    struct message message = {.type = MESSAGE_PREDICTIONS};

    message.as.predictions.code = code;
    message.as.predictions.first = probe->first;
    message.as.predictions.at = probe->at;
    message.as.predictions.step = node->step;
    (void)links_send(node->links, to, &message); /* who is gone asks no more */
}

/* Can it be answered at all? */
static enum predictions_code judge(const struct node *node, const struct message_probe *probe)
{
    const struct learner *learner = node->lane->learner;
    struct answer_shape shape;

    if (!node->options.serves_predictions || learner->ops->answer == NULL)
        return PREDICTIONS_CLOSED;
    learner->ops->answer_shape(learner, &shape);
    if (probe->first >= shape.samples || probe->count > shape.samples - probe->first ||
        probe->at >= probe->count) {
        return PREDICTIONS_OTHER_DATA;
    }
    const struct predictions_shape told = shape_of(&shape, probe->top);
    if ((uint64_t)probe->count * shape.sample_bytes > PROBE_BYTES_MAX && probe->count > 1) {
        return PREDICTIONS_TOO_LARGE;
    }
    /* The likeliest are looked for one by one. */
    if (told.top > ANSWER_TOP_MAX && told.top < told.outputs) return PREDICTIONS_TOO_LARGE;
    return predictions_bytes(&told) > PREDICTIONS_BYTES_MAX ? PREDICTIONS_TOO_LARGE
                                                            : PREDICTIONS_HERE;
}

void lane_answer_forget(struct node *node, struct peer_id from)
{
    struct lane_answering *a = &node->lane->answering;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < a->count; i++) {
        if (!peer_id_is_equal(a->asked[i].from, from)) a->asked[kept++] = a->asked[i];
    }
    a->count = kept;
}

static bool has_time(const struct node *node)
{
    const uint64_t full_ns = node->lane->answering.full_ns;

    return node->goal.is_reached ||
           ration_has(full_ns, node_now(node), 0, ANSWER_SHARE * ANSWER_BURST_NS);
}

/* When there is again. */
static uint64_t time_ns(const struct node *node)
{
    return node->lane->answering.full_ns - ANSWER_SHARE * ANSWER_BURST_NS;
}

/* There is no time now: who asked is told that an answer will come. */
static void put_off(struct node *node, const struct lane_question *question)
{
    struct message message = {.type = MESSAGE_PREDICTIONS};

    message.as.predictions.code = PREDICTIONS_LATER;
    message.as.predictions.first = question->probe.first;
    message.as.predictions.at = question->probe.at;
    message.as.predictions.step = node->step;
    message.as.predictions.wait_ms =
        (uint32_t)((time_ns(node) - node_now(node)) / NS_PER_MS % UINT32_MAX);
    (void)links_send(node->links, question->from, &message);
}

void lane_answer_hear(struct node *node, struct peer_id from, const struct message_probe *probe)
{
    struct lane_answering *a = &node->lane->answering;
    const enum predictions_code code = judge(node, probe);

    lane_answer_forget(node, from);
    if (code != PREDICTIONS_HERE) {
        refuse(node, from, probe, code);
    } else if (a->count == LANE_ASKERS_MAX) {
        refuse(node, from, probe, PREDICTIONS_BUSY);
    } else {
        a->asked[a->count++] = (struct lane_question){from, *probe};
        if (!has_time(node)) put_off(node, &a->asked[a->count - 1]);
    }
}

/* ---- whose turn it is ---- */

static bool is_held(const struct lane_answering *a, const struct message_probe *probe)
{
    return a->samples.count > 0 && probe->seed == a->held.seed && probe->first == a->held.first &&
           probe->count == a->held.count && digest_is_equal(probe->digest, a->held.digest);
}

/* The question to take up; NULL: none may be. Samples of one asker stay for its next question,
 * unless others have waited for long. */
static const struct lane_question *next_question(const struct node *node)
{
    const struct lane_answering *a = &node->lane->answering;
    const struct lane_question *other = NULL, *held = NULL;
    const uint64_t now_ns = node_now(node);

    for (uint32_t i = a->count; i-- > 0;) {
        const bool is_of_these = is_held(a, &a->asked[i].probe);
        if (is_of_these) held = &a->asked[i];
        if (!is_of_these) other = &a->asked[i];
    }
    if (other == NULL || a->samples.count == 0) return held != NULL ? held : other;
    if (now_ns >= a->loaded_ns + ANSWER_TURN_NS) return other;
    if (held != NULL) return held;
    return now_ns >= a->used_ns + ANSWER_STAY_NS ? other : NULL;
}

static bool is_due(struct node *node)
{
    struct lane_answering *a = &node->lane->answering;

    if (a->is_running) return false;
    if (a->count == 0) {
        if (a->samples.count > 0 && node_now(node) >= a->used_ns + ANSWER_KEEP_NS) {
            samples_deinit(&a->samples);
        }
        return false;
    }
    return has_time(node) && next_question(node) != NULL;
}

uint64_t lane_answer_next_ns(const struct node *node)
{
    const struct lane_answering *a = &node->lane->answering;
    const uint64_t burst_ns = ANSWER_SHARE * ANSWER_BURST_NS;

    if (node->lane->is_busy) return UINT64_MAX;
    if (a->count == 0) return a->samples.count > 0 ? a->used_ns + ANSWER_KEEP_NS : UINT64_MAX;
    if (node->state != NODE_TRAINING) return UINT64_MAX;
    if (!has_time(node)) return a->full_ns - burst_ns;
    return next_question(node) != NULL ? 0 : a->used_ns + ANSWER_STAY_NS;
}

/* ---- the job ---- */

static size_t slice_of(const struct lane_answering *a)
{
    const struct message_probe *probe = &a->now.probe;
    const size_t each = (size_t)a->shape.rows * a->shape.outputs;
    size_t count = a->each_ns == 0 ? ANSWER_FIRST : ANSWER_SLICE_NS / a->each_ns + 1;

    if (count > PREDICTIONS_BYTES_MAX / predictions_bytes(&a->shape)) {
        count = PREDICTIONS_BYTES_MAX / predictions_bytes(&a->shape);
    }
    if (count > ANSWER_VALUES / each) count = ANSWER_VALUES / each;
    if (count > probe->most) count = probe->most;
    if (count > probe->count - probe->at) count = probe->count - probe->at;
    return count > 0 ? count : 1;
}

static enum border_next prepare(struct node *node, struct border_job *job)
{
    struct lane_answering *a = &node->lane->answering;
    struct learner *learner = node->lane->learner;
    struct answer_shape shape;

    (void)job;
    a->now = *next_question(node);
    learner->ops->answer_shape(learner, &shape);
    a->shape = shape_of(&shape, a->now.probe.top);
    a->is_loading = !is_held(a, &a->now.probe);
    a->answered = slice_of(a);
    a->is_running = true;
    return BORDER_SUBMIT;
}

static enum rc load(struct learner *learner, struct lane_answering *a)
{
    struct answer_shape shape;
    enum rc rc = RC_NOMEM;

    samples_deinit(&a->samples);
    learner->ops->answer_shape(learner, &shape);
    uint32_t *order = mem_array((size_t)shape.samples, sizeof *order);
    if (order != NULL) {
        dataset_order(a->now.probe.seed, order, (size_t)shape.samples);
        rc = learner->ops->load_samples(learner, order + a->now.probe.first, a->now.probe.count,
                                        &a->samples, &a->digest);
    }
    mem_free(order);
    if (rc != RC_OK) samples_deinit(&a->samples);
    return rc;
}

static enum rc answer(struct learner *learner, struct lane_answering *a)
{
    const size_t each = (size_t)a->shape.rows * a->shape.outputs;
    enum rc rc;

    a->values = mem_array(a->answered * each, sizeof *a->values);
    a->bytes = mem_array(a->answered, predictions_bytes(&a->shape));
    if (a->values == NULL || a->bytes == NULL) return RC_NOMEM;
    rc = learner->ops->answer(learner, &a->samples, a->now.probe.at, a->answered, a->values);
    if (rc == RC_OK) predictions_encode(&a->shape, a->values, a->answered, a->bytes);
    return rc;
}

static void run(struct border_job *job)
{
    struct lane_state *lane = job->node->lane;

    job->rc = lane->answering.is_loading ? load(lane->learner, &lane->answering)
                                         : answer(lane->learner, &lane->answering);
}

/* ---- what came of it ---- */

static void send_answer(struct node *node)
{
    struct lane_answering *a = &node->lane->answering;
    struct message message = {.type = MESSAGE_PREDICTIONS};

    message.as.predictions.first = a->now.probe.first;
    message.as.predictions.at = a->now.probe.at;
    message.as.predictions.count = (uint32_t)a->answered;
    message.as.predictions.step = node->step;
    message.as.predictions.values = a->bytes;
    message.as.predictions.values_bytes = (uint32_t)(a->answered * predictions_bytes(&a->shape));
    (void)links_send(node->links, a->now.from, &message); /* who is gone asks no more */
}

/* The same asker may have asked something else meanwhile, or be gone. */
static bool is_asked_still(const struct lane_answering *a)
{
    for (uint32_t i = 0; i < a->count; i++) {
        if (!peer_id_is_equal(a->asked[i].from, a->now.from)) continue;
        return memcmp(&a->asked[i].probe, &a->now.probe, sizeof a->now.probe) == 0;
    }
    return false;
}

static void loaded(struct node *node, const struct border_job *job)
{
    struct lane_answering *a = &node->lane->answering;
    const bool is_other = job->rc != RC_OK && job->rc != RC_NOMEM;

    a->held = a->now.probe;
    /* Its turn begins when there is time to answer: loading may have used that up. */
    a->loaded_ns = a->used_ns = has_time(node) ? node_now(node) : time_ns(node);
    if (job->rc == RC_OK && digest_is_equal(a->digest, a->now.probe.digest)) {
        if (!has_time(node) && is_asked_still(a)) put_off(node, &a->now);
        return;
    }
    samples_deinit(&a->samples);
    if (!is_asked_still(a)) return;
    lane_answer_forget(node, a->now.from);
    refuse(node, a->now.from, &a->now.probe,
           is_other || job->rc == RC_OK ? PREDICTIONS_OTHER_DATA : PREDICTIONS_TOO_LARGE);
}

static void done(struct node *node, struct border_job *job)
{
    struct lane_answering *a = &node->lane->answering;
    const uint64_t took_ns = node_now(node) - job->begun_ns;

    a->is_running = false;
    node->watch.answering_ns += took_ns;
    ration_take(&a->full_ns, node_now(node), ANSWER_SHARE * took_ns);
    if (a->is_loading) {
        loaded(node, job);
        return;
    }
    a->used_ns = node_now(node);
    if (is_asked_still(a)) {
        lane_answer_forget(node, a->now.from);
        if (job->rc == RC_OK) send_answer(node);
        if (job->rc != RC_OK) refuse(node, a->now.from, &a->now.probe, PREDICTIONS_BUSY);
    }
    if (job->rc == RC_OK) {
        const uint64_t each_ns = took_ns / a->answered + 1;
        a->each_ns = a->each_ns == 0 ? each_ns : (3 * a->each_ns + each_ns) / 4;
        node->watch.answers += a->answered;
    }
    mem_free(a->values);
    mem_free(a->bytes);
    a->values = NULL;
    a->bytes = NULL;
}

const struct border_work border_answer = {.name = "answer",
                                          .states = BORDER_TRAINING,
                                          .when = is_due,
                                          .prepare = prepare,
                                          .run = run,
                                          .done = done};

void lane_answer_deinit(struct node *node)
{
    struct lane_answering *a = &node->lane->answering;

    samples_deinit(&a->samples);
    mem_free(a->values);
    mem_free(a->bytes);
}
