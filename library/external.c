/* external: see external.h. */
#include "library/external.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/plane/mixture.h"
#include "replica/plane/store_safetensors.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const char state_name[] = "external.state";

enum { STATE_STEP, STATE_SAMPLES, STATE_WORDS };

enum lane_waits { WAITS_NOT, WAITS_STEPS, WAITS_WORK };

struct external {
    struct learner learner; /* first: learners are cast back */
    struct schema schema;
    int bell;
    uint64_t step, samples; /* of the lane, but before external_start() */
    pthread_mutex_t lock;   /* covers all down to the trainer's own */
    pthread_cond_t served;
    enum lane_waits waits;
    struct external_work work;
    const atomic_bool *stop;
    uint32_t wanted, taken; /* steps, of WAITS_STEPS */
    uint64_t taken_samples;
    double loss_sum;
    enum rc rc;       /* of what was waited for */
    float *beginning; /* [parameters + buffers] that were assigned before the start; or NULL */
    bool has_parameters, has_buffers; /* in it */
    bool is_started, is_abandoned, has_ended;
    bool is_paused, has_state; /* no steps before; EXTERNAL_STATE is due */
    /* the trainer's own */
    bool is_stepping, has_work;
    struct external_work own_work;
    uint32_t left; /* of the steps that it was asked for */
    uint32_t own_taken;
    uint64_t own_samples;
    uint64_t own_first; /* the model's step before them */
    double own_loss_sum;
    const atomic_bool *own_stop;
};

static struct external *external_of(struct learner *learner)
{
    return (struct external *)(void *)learner;
}

static const struct external *external_peek(const struct learner *learner)
{
    return (const struct external *)(const void *)learner;
}

static void lock(struct external *e)
{
    CHECK(pthread_mutex_lock(&e->lock) == 0);
}

static void unlock(struct external *e)
{
    CHECK(pthread_mutex_unlock(&e->lock) == 0);
}

static void ring(struct external *e)
{
    const uint64_t one = 1;

    /* It can fail only when it has been rung 2^64 times, and then it rings. */
    if (write(e->bell, &one, sizeof one) != (ssize_t)sizeof one) return;
}

/* ---- the lane ---- */

/* With the lock held, which is let go: until the trainer has served what is set. */
static enum rc wait_served(struct external *e)
{
    enum rc rc;

    ring(e);
    while (e->waits != WAITS_NOT) {
        CHECK(pthread_cond_wait(&e->served, &e->lock) == 0);
    }
    rc = e->rc;
    unlock(e);
    return rc;
}

static enum rc ask(struct external *e, const struct external_work *work)
{
    lock(e);
    if (e->is_abandoned) {
        unlock(e);
        return RC_CANCELLED;
    }
    CHECK(e->waits == WAITS_NOT && e->is_started);
    e->work = *work;
    e->waits = WAITS_WORK;
    return wait_served(e);
}

static enum rc external_train(struct learner *learner, uint32_t steps, const atomic_bool *stop,
                              struct train_report *report)
{
    struct external *e = external_of(learner);
    enum rc rc = RC_OK;

    lock(e);
    e->taken = 0;
    e->taken_samples = 0;
    e->loss_sum = 0.0;
    if (e->is_abandoned) {
        rc = RC_CANCELLED;
        unlock(e);
    } else if (steps > 0 && !e->is_paused) {
        e->wanted = steps;
        e->stop = stop;
        e->waits = WAITS_STEPS;
        rc = wait_served(e);
    } else {
        unlock(e);
    }
    e->step += e->taken;
    e->samples += e->taken_samples;
    *report = (struct train_report){.steps = e->taken,
                                    .step = e->step,
                                    .samples = e->samples,
                                    .loss_sum = e->loss_sum,
                                    .correct_share = (double)NAN};
    if (rc == RC_OK && !isfinite(e->loss_sum)) rc = RC_NONFINITE;
    return rc;
}

static enum rc external_export(struct learner *learner, enum section section, float *out,
                               size_t count)
{
    struct external *e = external_of(learner);
    const size_t parameters = e->schema.values[SECTION_PARAMETERS];
    struct external_work work = {.event = EXTERNAL_SNAPSHOT};
    enum rc rc;

    CHECK(count == e->schema.values[section]);
    if (count == 0) return RC_OK;
    if (section == SECTION_PARAMETERS || section == SECTION_MIXED) work.parameters_out = out;
    if (section == SECTION_BUFFERS) work.buffers_out = out;
    if (section == SECTION_MIXED) work.buffers_out = out + parameters;
    rc = ask(e, &work);
    if (rc == RC_OK && section == SECTION_MIXED) mixture_fill(&e->schema, out);
    return rc;
}

static enum rc external_import(struct learner *learner, enum section section,
                               const float *difference, size_t count)
{
    struct external *e = external_of(learner);
    const struct external_work work = {.event = EXTERNAL_DIFFERENCE, .difference = difference};

    CHECK(section == SECTION_MIXED && count == e->schema.values[SECTION_MIXED]);
    return ask(e, &work);
}

/* Before anybody trains. */
static enum rc keep_beginning(struct external *e, enum section section, const float *from)
{
    const size_t parameters = e->schema.values[SECTION_PARAMETERS];
    const size_t buffers = e->schema.values[SECTION_BUFFERS];

    if (e->beginning == NULL) e->beginning = mem_array(parameters + buffers, sizeof(float));
    if (e->beginning == NULL) return RC_NOMEM;
    if (section == SECTION_PARAMETERS) {
        memcpy(e->beginning, from, parameters * sizeof(float));
        e->has_parameters = true;
    } else {
        memcpy(e->beginning + parameters, from, buffers * sizeof(float));
        e->has_buffers = true;
    }
    return RC_OK;
}

static enum rc external_assign(struct learner *learner, enum section section, const float *from,
                               size_t count)
{
    struct external *e = external_of(learner);
    struct external_work work = {.event = EXTERNAL_REPLACE};

    CHECK(count == e->schema.values[section]);
    if (count == 0) return RC_OK;
    CHECK(section == SECTION_PARAMETERS || section == SECTION_BUFFERS);
    if (!e->is_started) return keep_beginning(e, section, from);
    if (section == SECTION_PARAMETERS) work.parameters = from;
    if (section == SECTION_BUFFERS) work.buffers = from;
    return ask(e, &work);
}

static enum rc external_gradient(struct learner *learner, float *out, struct train_report *report)
{
    (void)learner;
    (void)out;
    (void)report;
    return RC_UNSUPPORTED;
}

static enum rc external_gradient_step(struct learner *learner, const float *gradient)
{
    (void)learner;
    (void)gradient;
    return RC_UNSUPPORTED;
}

static void external_set_step(struct learner *learner, uint64_t step)
{
    external_of(learner)->step = step;
}

static double external_step_rate(const struct learner *learner)
{
    (void)learner; /* the trainer's own, and told to nobody */
    return 1.0;
}

static enum rc external_reshard(struct learner *learner, struct peer_id self,
                                const struct peer_id *members, size_t members_count,
                                struct fault *why)
{
    (void)learner; /* which data it trains on is the trainer's choice */
    (void)self;
    (void)members;
    (void)members_count;
    (void)why;
    return RC_OK;
}

static uint64_t external_shard_samples(const struct learner *learner)
{
    (void)learner;
    return 0; /* not known */
}

static enum rc external_evaluate(struct learner *learner, uint64_t samples_max,
                                 struct evaluation *evaluation)
{
    (void)learner;
    (void)samples_max;
    (void)evaluation;
    return RC_UNSUPPORTED;
}

static enum rc external_save(struct learner *learner, struct tensor_file *file)
{
    const struct external *e = external_of(learner);
    const uint64_t words[STATE_WORDS] = {[STATE_STEP] = e->step, [STATE_SAMPLES] = e->samples};

    return tensor_file_add_u64_copy(file, state_name, words, STATE_WORDS);
}

static enum rc external_load(struct learner *learner, const struct tensor_file *file,
                             struct fault *why)
{
    struct external *e = external_of(learner);
    const struct tensor_view *view = tensor_file_find(file, state_name);
    uint64_t words[STATE_WORDS];

    if (view == NULL || strcmp(view->dtype, "U64") != 0 || view->bytes_count != sizeof words) {
        return fault_set(why, RC_FORMAT,
                         "the checkpoint is not of a program with a trainer of its own; take "
                         "another");
    }
    memcpy(words, view->bytes, sizeof words);
    e->step = words[STATE_STEP];
    e->samples = words[STATE_SAMPLES];
    return RC_OK;
}

static const struct schema *external_schema(const struct learner *learner)
{
    return &external_peek(learner)->schema;
}

static void external_destroy(struct learner *learner)
{
    struct external *e = external_of(learner);

    if (e == NULL) return;
    schema_deinit(&e->schema);
    if (e->bell >= 0) (void)close(e->bell);
    CHECK(pthread_mutex_destroy(&e->lock) == 0 && pthread_cond_destroy(&e->served) == 0);
    mem_free(e->beginning);
    mem_free(e);
}

static const struct learner_ops external_ops = {
    .name = "external",
    .destroy = external_destroy,
    .schema = external_schema,
    .train = external_train,
    .gradient = external_gradient,
    .step = external_gradient_step,
    .export_section = external_export,
    .import_section = external_import,
    .assign_section = external_assign,
    .set_step = external_set_step,
    .step_rate = external_step_rate,
    .reshard = external_reshard,
    .shard_samples = external_shard_samples,
    .evaluate = external_evaluate,
    .save = external_save,
    .load = external_load,
};

/* ---- the trainer ---- */

/* With the lock held. */
static void serve(struct external *e, enum rc rc)
{
    e->rc = rc;
    e->waits = WAITS_NOT;
    CHECK(pthread_cond_signal(&e->served) == 0);
}

/* The steps that were asked for are taken, or as many of them as there is time for. */
static void tell_steps(struct external *e)
{
    lock(e);
    if (e->waits == WAITS_STEPS) {
        e->taken = e->own_taken;
        e->taken_samples = e->own_samples;
        e->loss_sum = e->own_loss_sum;
        serve(e, RC_OK);
    }
    unlock(e);
    e->is_stepping = false;
}

static void begin_steps(struct external *e)
{
    e->is_stepping = true;
    e->left = e->wanted;
    e->own_stop = e->stop;
    e->own_taken = 0;
    e->own_samples = 0;
    e->own_first = e->step; /* the lane waits for us */
    e->own_loss_sum = 0.0;
}

/* With the lock held: what was assigned before the start comes first. */
static enum external_event begin_work(struct external *e)
{
    if (e->has_parameters || e->has_buffers) {
        const float *buffers = e->beginning + e->schema.values[SECTION_PARAMETERS];

        if (!e->has_work) {
            e->has_work = true;
            e->own_work =
                (struct external_work){.event = EXTERNAL_REPLACE,
                                       .parameters = e->has_parameters ? e->beginning : NULL,
                                       .buffers = e->has_buffers ? buffers : NULL};
        }
        return EXTERNAL_REPLACE;
    }
    if (e->waits != WAITS_WORK) return EXTERNAL_WAITS;
    e->has_work = true;
    e->own_work = e->work;
    if (e->work.event == EXTERNAL_REPLACE) e->own_first = e->own_taken = 0; /* of another model */
    return e->work.event;
}

enum external_event external_next(struct learner *learner)
{
    struct external *e = external_of(learner);
    enum external_event event = EXTERNAL_WAITS;
    uint64_t rings;

    if (e->is_stepping) {
        if (e->own_stop == NULL || !atomic_load(e->own_stop)) return EXTERNAL_STEP;
        tell_steps(e);
    }
    if (read(e->bell, &rings, sizeof rings) < 0) rings = 0; /* it was silent */
    lock(e);
    if (e->has_state && !e->is_abandoned) {
        event = EXTERNAL_STATE;
    } else if (e->has_ended || e->is_abandoned) {
        event = EXTERNAL_ENDED;
    } else if (e->waits == WAITS_STEPS && !e->has_parameters && !e->has_buffers) {
        begin_steps(e);
        event = EXTERNAL_STEP;
    } else {
        event = begin_work(e);
    }
    unlock(e);
    return event;
}

const struct external_work *external_work(const struct learner *learner)
{
    const struct external *e = external_peek(learner);

    return e->has_work ? &e->own_work : NULL;
}

void external_done(struct learner *learner, enum rc rc)
{
    struct external *e = external_of(learner);

    CHECK(e->has_work);
    lock(e);
    e->has_work = false;
    if (e->has_parameters || e->has_buffers) {
        e->has_parameters = e->has_buffers = false;
        mem_free(e->beginning);
        e->beginning = NULL;
    } else if (e->waits == WAITS_WORK) {
        serve(e, rc);
    }
    unlock(e);
}

uint32_t external_untold(const struct learner *learner, uint64_t known, uint64_t *samples)
{
    const struct external *e = external_peek(learner);
    const bool is_known = e->own_first + e->own_taken <= known;

    *samples = is_known ? 0 : e->own_samples;
    return is_known ? 0 : e->own_taken;
}

bool external_step(struct learner *learner, uint64_t samples, double loss)
{
    struct external *e = external_of(learner);

    if (!e->is_stepping) return false;
    e->own_taken++;
    e->own_samples += samples;
    e->own_loss_sum += loss;
    if (--e->left == 0 || !isfinite(loss)) tell_steps(e);
    return true;
}

/* What the lane waits for is answered with the steps that were taken, be it none. */
void external_pause(struct learner *learner)
{
    struct external *e = external_of(learner);

    if (e->is_stepping) tell_steps(e);
    lock(e);
    e->is_paused = true;
    if (e->waits == WAITS_STEPS) serve(e, RC_OK);
    unlock(e);
}

bool external_is_over(struct learner *learner)
{
    struct external *e = external_of(learner);
    bool is_over;

    lock(e);
    is_over = e->has_ended || e->is_abandoned;
    unlock(e);
    return is_over;
}

void external_state_taken(struct learner *learner)
{
    struct external *e = external_of(learner);

    lock(e);
    e->has_state = false;
    unlock(e);
}

/* ---- others ---- */

void external_resume(struct learner *learner)
{
    struct external *e = external_of(learner);

    lock(e);
    e->is_paused = false;
    e->has_state = true;
    ring(e);
    unlock(e);
}

void external_start(struct learner *learner)
{
    external_of(learner)->is_started = true;
}

int external_bell(const struct learner *learner)
{
    return external_peek(learner)->bell;
}

void external_end(struct learner *learner)
{
    struct external *e = external_of(learner);

    lock(e);
    e->has_ended = true;
    ring(e);
    unlock(e);
}

void external_abandon(struct learner *learner)
{
    struct external *e = external_of(learner);

    lock(e);
    e->is_abandoned = true;
    if (e->waits != WAITS_NOT) serve(e, RC_CANCELLED);
    unlock(e);
}

enum rc external_create(struct schema *schema, struct learner **learner, struct fault *why)
{
    struct external *e = mem_alloc(sizeof *e);

    if (e == NULL) {
        schema_deinit(schema);
        return fault_set(why, RC_NOMEM, "out of memory");
    }
    e->learner.ops = &external_ops;
    e->schema = *schema;
    schema_init(schema);
    CHECK(pthread_mutex_init(&e->lock, NULL) == 0 && pthread_cond_init(&e->served, NULL) == 0);
    e->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (e->bell < 0) {
        external_destroy(&e->learner);
        return fault_set(why, RC_IO, "cannot start: too many open files");
    }
    *learner = &e->learner;
    return RC_OK;
}
