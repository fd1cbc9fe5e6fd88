/* See team.h. */
#include "replica/learners/team.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "replica/learners/workers.h"
#include "replica/model/layers.h"
#include "replica/model/plan.h"

#include <string.h>

/* One thread's share of the work. */
struct lane {
    struct backend *backend; /* lane 0 has the caller's */
    struct model *model;
    uint32_t first, samples; /* of the batch in hand */
    enum rc rc;              /* of the pass */
    enum rc work_rc; /* of what was done with its result; apart, as others still read `rc` then */
    double *sums;    /* what it brings to a meeting */
};

struct team {
    struct backend *backend;
    struct backend *own_backend; /* that, where nobody else is to release it */
    struct workers *workers;
    bool is_apart; /* lanes have planes of their own, on devices of their own */
    struct lane *lanes;
    uint32_t lanes_count;
    uint32_t grain; /* lanes begin at multiples of so many samples */
    struct model_meeting meeting;
    /* Of the pass in hand: */
    const float *input, *gradient;
    float *logits; /* NULL: they stay where they are */
    uint32_t batch;
    bool is_training;
    const struct team_pass *pass; /* what is to be judged; NULL: nothing */
    team_work work;               /* for each lane's part of `work_count` values; NULL: none */
    void *work_context;
    size_t work_count;
};

/* Sum up what all lanes bring, in the order of lanes, so that all get the same bits. */
static void meet(void *context, uint32_t number, double *values, size_t count)
{
    struct team *team = context;

    team->lanes[number].sums = values;
    workers_meet(team->workers);
    if (number == 0) {
        for (uint32_t l = 1; l < team->lanes_count; l++) {
            for (size_t i = 0; i < count; i++) {
                values[i] += team->lanes[l].sums[i];
            }
        }
    }
    workers_meet(team->workers);
    if (number > 0) memcpy(values, team->lanes[0].sums, count * sizeof(*values));
    workers_meet(team->workers); /* lane 0 must not change them before all have read */
}

/* Samples that belong in one lane: a ghost batch (`bn:32`) has statistics of its own, which must
 * not change with the number of threads. The least common multiple of all, or the whole batch. */
static enum rc find_grain(const struct model_options *options, uint32_t *grain, struct fault *why)
{
    struct layer_list *list = mem_alloc(sizeof(*list));
    uint64_t common = 1;
    enum rc rc;

    if (list == NULL) return fault_set(why, RC_NOMEM, "cannot set up the model: out of memory");
    rc = layers_parse(options->spec, options->classes, list, why);
    for (uint32_t i = 0; rc == RC_OK && i < list->count; i++) {
        uint64_t ghost = list->layers[i].count, multiple = common;
        if (list->layers[i].kind != LAYER_BATCH_NORM || ghost == 0) continue;
        while (multiple % ghost != 0 && multiple < options->batch_max) {
            multiple += common;
        }
        common = multiple < options->batch_max ? multiple : options->batch_max;
    }
    mem_free(list);
    *grain = common == 0 ? 1 : (uint32_t)common;
    return rc;
}

/* Grains of so many samples. */
static uint32_t grains_of(const struct team *team, uint32_t samples)
{
    return samples / team->grain + (samples % team->grain != 0);
}

static enum rc make_lane(struct team *team, uint32_t number, const struct model_options *options,
                         struct fault *why)
{
    struct lane *lane = &team->lanes[number];
    struct model_options mine = *options;
    uint32_t grains = grains_of(team, options->batch_max);

    grains = (grains + team->lanes_count - 1) / team->lanes_count; /* of the largest part */
    mine.batch_max = grains * team->grain;
    if (mine.batch_max > options->batch_max) mine.batch_max = options->batch_max;
    lane->backend = team->backend;
    if (number > 0) {
        if (!team->is_apart) mine.leader = team->lanes[0].model;
        lane->backend = team->backend->ops->sibling(team->backend);
        if (lane->backend == NULL) {
            return fault_set(why, RC_NOMEM, "cannot set up the model: out of memory");
        }
    }
    if (team->lanes_count > 1 && !team->is_apart) {
        mine.meeting = &team->meeting;
        mine.lane = number;
    }
    return model_create(lane->backend, &mine, &lane->model, why);
}

/* Threads may be fewer than asked for; devices that sum up together wait for every one of them. */
static enum rc count_lanes(const struct team *team, const struct model_options *options,
                           uint32_t *threads, struct fault *why)
{
    uint32_t grains = grains_of(team, options->batch_max);

    if (team->is_apart && grains < *threads) {
        return fault_set(why, RC_USAGE,
                         "--batch %u has %u parts, too few for %u GPUs; use a larger one, or fewer "
                         "of them",
                         options->batch_max, grains, *threads);
    }
    if (*threads > grains) *threads = grains;
    return RC_OK;
}

enum rc team_create(struct backend *backend, const struct model_options *options,
                    struct team **team, struct fault *why)
{
    struct team *t = mem_alloc(sizeof(*t));
    uint32_t threads = backend->threads;
    enum rc rc;

    if (t == NULL) return fault_set(why, RC_NOMEM, "cannot set up the model: out of memory");
    t->is_apart = backend->is_apart;
    rc = find_grain(options, &t->grain, why);
    if (rc == RC_OK) rc = count_lanes(t, options, &threads, why);
    if (rc != RC_OK) {
        mem_free(t);
        return rc;
    }
    if (threads > WORKERS_MAX) threads = WORKERS_MAX;
    if (threads == 0 || backend->ops->sibling == NULL) threads = 1;
    t->backend = backend;
    t->lanes_count = threads;
    t->meeting = (struct model_meeting){meet, t};
    if (threads > 1) backend->threads = 1; /* each */
    t->lanes = mem_array(threads, sizeof(*t->lanes));
    if (t->lanes == NULL) {
        rc = fault_set(why, RC_NOMEM, "cannot set up the model: out of memory");
    }
    for (uint32_t l = 0; rc == RC_OK && l < threads; l++) {
        rc = make_lane(t, l, options, why);
    }
    if (rc == RC_OK && workers_create(threads, &t->workers) != RC_OK) {
        rc = fault_set(why, RC_NOMEM, "cannot start %u threads; use a smaller --threads", threads);
    }
    if (rc != RC_OK) {
        team_destroy(t);
        return rc;
    }
    *team = t;
    return RC_OK;
}

/* A model like that of lane 0, with its values. */
static enum rc follow(struct team *team, uint32_t number, struct fault *why)
{
    struct lane *lane = &team->lanes[number];
    struct model *leader = team->lanes[0].model;
    const struct model_options options = {
        .spec = leader->spec,
        .channels = leader->input.image.channels,
        .height = leader->input.image.height,
        .width = leader->input.steps > 0 ? leader->input.steps : leader->input.image.width,
        .classes = leader->classes,
        .symbols = leader->symbols,
        .input = leader->input_kind,
        .batch_max = leader->batch_max,
        .leader = leader,
    };

    lane->backend = team->backend->ops->sibling(team->backend);
    if (lane->backend == NULL) {
        return fault_set(why, RC_NOMEM, "cannot set up the model: out of memory");
    }
    return model_create(lane->backend, &options, &lane->model, why);
}

struct backend *team_around_begin(struct backend *backend, struct team_around *around)
{
    const bool is_alone =
        backend->threads < 2 || !backend->is_host || backend->ops->sibling == NULL;

    *around = (struct team_around){.threads = is_alone ? 1 : backend->threads};
    if (is_alone) return backend;
    around->backend = backend->ops->sibling(backend);
    return around->backend;
}

enum rc team_around(const struct team_around *around, struct team **team, struct fault *why)
{
    struct team *t = mem_alloc(sizeof(*t));
    struct backend *backend = model_backend(around->model);
    uint32_t threads = around->threads < WORKERS_MAX ? around->threads : WORKERS_MAX;
    enum rc rc = t != NULL ? RC_OK : RC_NOMEM;

    if (threads == 0 || backend->is_apart || backend->ops->sibling == NULL) threads = 1;
    if (rc == RC_OK) {
        t->backend = backend;
        t->grain = 1;
        t->lanes = mem_array(threads, sizeof(*t->lanes));
        rc = t->lanes != NULL ? workers_create(threads, &t->workers) : RC_NOMEM;
    }
    if (rc != RC_OK) {
        team_destroy(t);
        model_destroy(around->model);
        backend_destroy(around->backend);
        return fault_set(why, rc, "cannot set up the model: out of memory");
    }
    t->own_backend = around->backend;
    t->lanes[0] = (struct lane){.backend = backend, .model = around->model};
    t->lanes_count = 1;
    while (rc == RC_OK && t->lanes_count < threads) {
        rc = follow(t, t->lanes_count++, why);
    }
    if (rc != RC_OK) {
        team_destroy(t);
        return rc;
    }
    *team = t;
    return RC_OK;
}

void team_destroy(struct team *team)
{
    if (team == NULL) return;
    workers_destroy(team->workers);
    for (uint32_t l = team->lanes == NULL ? 0 : team->lanes_count; l-- > 0;) {
        model_destroy(team->lanes[l].model);
        if (l > 0) backend_destroy(team->lanes[l].backend);
    }
    backend_destroy(team->own_backend);
    mem_free(team->lanes);
    mem_free(team);
}

struct model *team_model(const struct team *team)
{
    return team->lanes[0].model;
}

uint32_t team_threads(const struct team *team)
{
    return team->lanes_count;
}

const char *team_why(const struct team *team)
{
    const char *why = "";

    for (uint32_t l = 0; why[0] == '\0' && l < team->lanes_count; l++) {
        why = model_device_why(team->lanes[l].model);
    }
    return why;
}

void team_set_stop(struct team *team, const atomic_bool *stop)
{
    for (uint32_t l = 0; l < team->lanes_count; l++) {
        model_set_stop(team->lanes[l].model, stop);
    }
}

void team_set_stream(struct team *team, uint64_t stream, uint64_t passes)
{
    for (uint32_t l = 0; l < team->lanes_count; l++) {
        model_set_stream(team->lanes[l].model, stream, passes);
    }
}

/* Values of logits per sample in this kind of pass. */
static size_t logits_of(const struct team *team, bool is_training)
{
    const struct model *model = team->lanes[0].model;
    size_t heads = is_training ? model_heads(model) : 1;

    return model_rows(model) * heads * model_classes(model);
}

/* Equal parts, the first ones a grain larger. */
static void share_out(struct team *team)
{
    uint32_t first = 0, grains = grains_of(team, team->batch);

    for (uint32_t l = 0; l < team->lanes_count; l++) {
        struct lane *lane = &team->lanes[l];
        lane->first = first;
        lane->samples =
            (grains / team->lanes_count + (l < grains % team->lanes_count)) * team->grain;
        if (lane->samples > team->batch - first) lane->samples = team->batch - first;
        lane->rc = RC_OK;
        first += lane->samples;
    }
}

/* Where the lane's part of logits or gradients of the batch begins. */
static size_t begin_of(const struct team *team, const struct lane *lane)
{
    return lane->first * logits_of(team, team->is_training);
}

static enum rc judge(const struct team *team, uint32_t number)
{
    const struct lane *lane = &team->lanes[number];
    const struct team_pass *pass = team->pass;
    struct team_outputs outputs = {.lane = number, .first = lane->first, .samples = lane->samples};

    if (pass->logits == NULL) {
        outputs.logits = model_logits(lane->model);
        if (pass->is_training) outputs.gradient = model_logits_gradient(lane->model);
    } else {
        outputs.logits = pass->logits + begin_of(team, lane);
        if (pass->is_training) outputs.gradient = pass->gradient + begin_of(team, lane);
    }
    return pass->loss(pass->context, &outputs);
}

static void lane_forward(void *context, uint32_t number)
{
    struct team *team = context;
    struct lane *lane = &team->lanes[number];
    size_t values = shape_values(lane->model->input);

    lane->model->closed = 0;
    if (lane->samples == 0) { /* but others may wait for it */
        model_attend(lane->model, team->is_training, false);
        return;
    }
    lane->model->first = lane->first;
    lane->rc = model_forward(lane->model, team->input + lane->first * values, lane->samples,
                             team->is_training,
                             team->logits != NULL ? team->logits + begin_of(team, lane) : NULL);
    if (lane->rc == RC_OK && team->pass != NULL) lane->rc = judge(team, number);
}

static enum rc first_error(const struct team *team)
{
    for (uint32_t l = 0; l < team->lanes_count; l++) {
        if (team->lanes[l].rc != RC_OK) return team->lanes[l].rc;
    }
    return RC_OK;
}

static enum rc first_error_of_work(const struct team *team)
{
    enum rc rc = first_error(team);

    for (uint32_t l = 0; rc == RC_OK && l < team->lanes_count; l++) {
        rc = team->lanes[l].work_rc;
    }
    return rc;
}

static enum rc forward(struct team *team, const struct team_pass *pass)
{
    team->input = pass->input;
    team->batch = pass->batch;
    team->is_training = pass->is_training;
    team->logits = pass->logits;
    team->pass = pass->loss != NULL ? pass : NULL;
    share_out(team);
    workers_run(team->workers, lane_forward, team);
    team->pass = NULL;
    return first_error(team);
}

enum rc team_forward(struct team *team, const float *input, uint32_t batch, bool is_training,
                     float *logits)
{
    return forward(team, &(struct team_pass){input, batch, is_training, logits, NULL, NULL, NULL});
}

enum rc team_judge(struct team *team, const struct team_pass *pass)
{
    CHECK(pass->loss != NULL);
    return forward(team, pass);
}

/* The lanes' parts of `count` values. */
static struct team_part part_of(const struct team *team, uint32_t number, size_t count)
{
    size_t each = (count / team->lanes_count + 15) / 16 * 16;
    struct team_part part = {team->lanes[number].backend, number, team->lanes_count,
                             number * each < count ? number * each : count, count};

    if (number + 1 < team->lanes_count && count - part.begin > each) part.end = part.begin + each;
    return part;
}

/* Part `number` of the gradient plane: what all lanes found is added up, in the order of lanes. */
static enum rc sum_part(struct team *team, uint32_t number)
{
    struct team_part part =
        part_of(team, number, team->lanes[0].model->schema.values[SECTION_GRADIENT]);
    enum rc rc = RC_OK;

    for (uint32_t l = 1; rc == RC_OK && part.begin < part.end && l < team->lanes_count; l++) {
        if (team->lanes[l].samples == 0) continue;
        rc = part.backend->ops->axpy(
            part.backend, 1.0F, team->lanes[l].model->planes[SECTION_GRADIENT] + part.begin,
            team->lanes[0].model->planes[SECTION_GRADIENT] + part.begin, part.end - part.begin);
    }
    return rc;
}

static void lane_backward(void *context, uint32_t number)
{
    struct team *team = context;
    struct lane *lane = &team->lanes[number];
    enum rc rc;

    lane->work_rc = RC_OK;
    lane->model->closed = 0;
    if (lane->samples == 0) {
        model_attend(lane->model, true, true);
    } else {
        const float *gradient = team->gradient;
        if (gradient != NULL) gradient += begin_of(team, lane);
        lane->rc = model_backward(lane->model, gradient);
    }
    workers_meet(team->workers);
    if (first_error(team) != RC_OK) return; /* all of them see the same */
    rc = sum_part(team, number);
    if (team->work != NULL) { /* others may wait for this lane in it */
        struct team_part part = part_of(team, number, team->work_count);
        enum rc rc_work = team->work(team->work_context, &part);
        if (rc == RC_OK) rc = rc_work;
    }
    lane->work_rc = rc;
}

static void lane_work(void *context, uint32_t number)
{
    struct team *team = context;
    struct team_part part = part_of(team, number, team->work_count);

    backend_bind_thread(part.backend);
    team->lanes[number].rc = RC_OK;
    team->lanes[number].work_rc = team->work(team->work_context, &part);
}

enum rc team_each(struct team *team, size_t count, team_work work, void *context)
{
    team->work = work;
    team->work_context = context;
    team->work_count = count;
    workers_run(team->workers, lane_work, team);
    return first_error_of_work(team);
}

void team_sum(struct team *team, uint32_t lane, double *values, size_t count)
{
    if (team->lanes_count > 1) meet(team, lane, values, count);
}

enum rc team_backward(struct team *team, const float *logits_gradient, team_work work,
                      void *context)
{
    size_t count = team->lanes[0].model->schema.values[SECTION_GRADIENT];
    enum rc rc;

    if (team->lanes_count == 1) {
        rc = model_backward(team->lanes[0].model, logits_gradient);
        return rc == RC_OK && work != NULL ? team_each(team, count, work, context) : rc;
    }
    team->work = work;
    team->work_context = context;
    team->work_count = count;
    team->gradient = logits_gradient;
    workers_run(team->workers, lane_backward, team);
    for (uint32_t l = 1; l < team->lanes_count; l++) { /* lanes without samples did not count */
        team->lanes[l].model->passes = team->lanes[0].model->passes;
    }
    return first_error_of_work(team);
}

/* Work of every lane on the model it has. */
struct lanes_work {
    struct team *team;
    team_lane_work work;
    void *context;
};

static void lane_run(void *context, uint32_t number)
{
    const struct lanes_work *all = context;
    struct lane *lane = &all->team->lanes[number];
    const struct team_lane mine = {lane->backend,          lane->model, number,
                                   all->team->lanes_count, lane->first, lane->samples};

    backend_bind_thread(lane->backend);
    lane->rc = all->work(all->context, &mine);
}

enum rc team_run(struct team *team, uint32_t batch, team_lane_work work, void *context)
{
    struct lanes_work all = {team, work, context};

    team->batch = batch;
    share_out(team);
    for (uint32_t l = 0; l < team->lanes_count; l++) {
        team->lanes[l].model->first = team->lanes[l].first;
    }
    workers_run(team->workers, lane_run, &all);
    return first_error(team);
}

/* What all but lane 0 have becomes 0, and then the sum is lane 0's. */
static enum rc spread_lane(void *context, const struct team_lane *lane)
{
    const enum section section = *(const enum section *)context;
    const struct backend_ops *ops = lane->backend->ops;
    size_t count = lane->model->schema.values[section];
    float *plane = model_plane(lane->model, section);
    enum rc rc = RC_OK;

    if (count == 0) return RC_OK;
    if (lane->number > 0) rc = ops->zero(lane->backend, plane, count * sizeof(float));
    return rc == RC_OK ? ops->all_reduce(lane->backend, plane, count) : rc;
}

enum rc team_spread(struct team *team, enum section section)
{
    if (!team->is_apart || team->lanes_count == 1) return RC_OK;
    return team_run(team, team->lanes_count, spread_lane, &section);
}
