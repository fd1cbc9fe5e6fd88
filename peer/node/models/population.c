/*
 * Population-based training (averaging/core/population.h) among the neighbours of a node: when it
 * scores its model, whom it meets, and how a copy is made.
 *
 *   IDLE --scored--> MET --the other was scored as late, and is better--> COPYING --taken, refused
 *    ^                |                                                       |     or lost--.
 *    |                '--it is not better, or gone: next score--.             |              |
 *    '-----------------------------------------------------------'------------'--------------'
 *
 * A copy is a download like any other (peer/download/joiner.h), of one donor, while training goes
 * on; so one that is lost on its way leaves everything as it was. Before it is taken, at a step
 * border, it is scored here, and so is the model it would replace: one that is not better is
 * refused. What a member says of itself therefore costs others a download at most, and each time
 * longer is waited before it is asked again. Models that began apart may be copied all the same:
 * nothing is mixed. Whoever comes new begins by itself, and copies when its first score is due.
 *
 * The run functions are the training lane's, the others the loop's.
 */
#include "peer/node/models/internal.h"

#include "base/crash_point.h"
#include "base/floats.h"
#include "base/norm.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

enum { MOMENTS_LARGER_MOST = 8 };
enum { PATIENCE_LEAST = 2, PATIENCE_MOST = 64 }; /* scores */

static struct models_population *population_of(const struct node *node)
{
    return &node->models->population;
}

bool models_are_population(const struct node *node)
{
    return node->options.strategy->is_population;
}

/* ---- life ---- */

static void set_rates(struct node *node)
{
    const struct population_rates *rates = &population_of(node)->machine.own.rates;

    lane_set_rates(node, (struct learner_rates){rates->rate, rates->decay});
}

enum rc models_population_create(struct node *node)
{
    struct models_population *population = population_of(node);
    const struct strategy *strategy = node->options.strategy;
    struct population_settings settings = strategy->population;
    struct learner_rates given;
    uint64_t line;

    if (!models_are_population(node)) return RC_OK;
    if (!lane_rates(node, &given)) return RC_UNSUPPORTED;
    settings.every_steps = strategy->every_steps;
    line = rng_mix(load_le64(node->self.bytes), load_le64(node->options.boot.bytes));
    population_init(&population->machine, &settings,
                    (struct population_rates){given.rate, given.decay}, line,
                    rng_mix(node->options.seed, load_le64(node->self.bytes)));
    set_rates(node);
    return RC_OK;
}

enum rc models_population_resume(struct node *node, struct fault *why)
{
    const struct checkpoint_population *kept = &node->options.resume->population;
    const struct population_rates rates = {kept->rate, kept->decay};

    if (!models_are_population(node) || !kept->is_there) return RC_OK;
    if (!population_resume(&population_of(node)->machine, rates, kept->line, kept->copies)) {
        return fault_set(why, RC_FORMAT, "the checkpoint's rates of --averaging %s are damaged",
                         node->options.strategy->name);
    }
    set_rates(node);
    return RC_OK;
}

struct checkpoint_population models_population_kept(const struct node *node)
{
    const struct population *machine = &population_of(node)->machine;

    if (!models_are_population(node)) return (struct checkpoint_population){.is_there = false};
    return (struct checkpoint_population){.is_there = true,
                                          .rate = machine->own.rates.rate,
                                          .decay = machine->own.rates.decay,
                                          .line = machine->own.line,
                                          .copies = machine->copies};
}

/* ---- what members say ---- */

void models_population_tell(struct node *node, const struct peer_id *to)
{
    const struct population_told *own = &population_of(node)->machine.own;
    struct message message = {.type = MESSAGE_SCORE};

    if (!models_are_population(node) || isnan(own->loss)) return;
    message.as.score = (struct message_score){.loss = (float)fmin(own->loss, (double)FLT_MAX),
                                              .step = own->step,
                                              .part = own->part,
                                              .rate = (float)own->rates.rate,
                                              .decay = (float)own->rates.decay,
                                              .line = own->line};
    if (message.as.score.rate <= 0) message.as.score.rate = FLT_MIN;
    if (to != NULL) {
        (void)links_send(node->links, *to, &message); /* a closed link hears it when it opens */
    } else {
        links_send_all(node->links, &message);
    }
}

static struct population_told told_by(const struct message_score *score)
{
    return (struct population_told){.loss = (double)score->loss,
                                    .step = score->step,
                                    .part = score->part,
                                    .rates = {(double)score->rate, (double)score->decay},
                                    .line = score->line};
}

void models_population_hear(struct node *node, struct peer_id from,
                            const struct message_score *score)
{
    struct neighbour *neighbour = door_neighbour(node, from);

    if (neighbour == NULL || (!models_are_population(node) && !rounds_are_adaptive(node))) return;
    neighbour->score = *score;
    neighbour->has_score = true;
}

/* ---- the score ---- */

uint64_t models_population_steps_left(const struct node *node)
{
    uint64_t left;

    if (!models_are_population(node)) return UINT64_MAX;
    left = population_steps_left(&population_of(node)->machine, node->step);
    return left > 0 ? left : 1;
}

static bool is_score_due(struct node *node)
{
    return models_are_population(node) && node->step > 0 &&
           population_steps_left(&population_of(node)->machine, node->step) == 0;
}

static enum border_next prepare_score(struct node *node, struct border_job *job)
{
    job->job.cost_ns += node->options.evaluate_cost_ns;
    return BORDER_SUBMIT;
}

static void run_score(struct border_job *job)
{
    job->rc = lane_validate(job->node, NULL, &job->evaluation, &job->digest);
}

/* Any linked member is as likely as any other, whatever it says of itself. */
static void meet(struct node *node)
{
    struct models_population *population = population_of(node);
    struct peer_id ids[LINKS_MAX];
    uint64_t count = 0;

    population->has_rival = false;
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (!other->has_progress || !other->progress.is_serving) continue;
        if (population_is_watched(&population->machine, other->id)) continue;
        count = peer_id_insert(ids, (size_t)count, other->id); /* in no order of links */
    }
    if (count == 0) return;
    population->rival = ids[rng_below(&population->machine.rng, count)];
    population->has_rival = true;
}

static void end_copy(struct node *node)
{
    joiner_finish(node->models->joiner, &node->outbox);
    population_of(node)->is_copying = false;
}

static void give_up_copy(struct node *node)
{
    struct models_population *population = population_of(node);

    log_info(node->options.log, "a better model could not be copied: this peer keeps its own");
    /* Who is gone is not to blame, who is there and gives nothing is. */
    if (door_neighbour(node, population->from) != NULL) {
        (void)population_refuse(&population->machine, population->from, &population->told,
                                (double)NAN);
    }
    end_copy(node);
}

/* A copy that does not go on keeps this peer from all others, so after some scores without a byte
 * it is given up. After how many is learned: twice as many each time, as lines may be slow, and
 * half of them once a copy came. */
static void watch_copy(struct node *node)
{
    struct models_population *population = population_of(node);
    const uint64_t held_bytes = joiner_stats(node->models->joiner).held_bytes;

    if (!population->is_copying || joiner_state(node->models->joiner) == JOINER_COMPLETE) return;
    population->idle_scores = held_bytes > population->held_bytes ? 0 : population->idle_scores + 1;
    population->held_bytes = held_bytes;
    if (population->idle_scores < population->patience) return;
    if (population->patience < PATIENCE_MOST) population->patience *= 2;
    give_up_copy(node);
}

static void scored(struct node *node, struct border_job *job)
{
    struct models_population *population = population_of(node);

    if (job->rc != RC_OK) {
        node_fail(node, job->rc,
                  job->rc == RC_NOT_FOUND
                      ? "no training samples are kept apart to score models by"
                      : "cannot score the model on the samples kept apart for it");
        return;
    }
    population_score(&population->machine, job->evaluation.loss, node->step, job->digest);
    if (isfinite(job->evaluation.loss)) lane_keep(node);
    models_population_tell(node, NULL);
    watch_copy(node);
    meet(node);
}

const struct border_work border_score = {.name = "score",
                                         .states = BORDER_TRAINING,
                                         .kind = BORDER_EVALUATION,
                                         .when = is_score_due,
                                         .prepare = prepare_score,
                                         .run = run_score,
                                         .done = scored};

/* ---- the tournament ---- */

static void begin_copy(struct node *node, const struct neighbour *rival)
{
    struct models_population *population = population_of(node);
    struct joiner *joiner = node->models->joiner;
    char id[PEER_ID_TEXT];
    enum rc rc = joiner_begin(joiner, &rival->id, 1, rival->progress.lineage, 0, node_now(node),
                              &node->outbox);

    if (rc != RC_OK) {
        log_warn(node->options.log, "cannot copy a better model: %s", rc_text(rc));
        return;
    }
    peer_id_format(rival->id, id);
    log_debug(node->options.log, "peer %.8s says loss %.4g, here it is %.4g: copying its model", id,
              (double)rival->score.loss, population->machine.own.loss);
    population->told = told_by(&rival->score);
    population->from = rival->id;
    population->held_bytes = 0;
    population->idle_scores = 0;
    if (population->patience == 0) population->patience = PATIENCE_LEAST;
    population->is_copying = true;
}

/* Members whose samples are other ones can never be compared: a swarm of such is none. */
static void tell_unlike(struct node *node, const struct population_told *told)
{
    struct models_population *population = population_of(node);

    if (population->is_unlike_told || digest_is_equal(told->part, population->machine.own.part))
        return;
    population->is_unlike_told = true;
    log_warn(node->options.log,
             "another member scores its model by other samples, so neither can copy the other: "
             "%s needs the same --data and --seed everywhere",
             node->options.strategy->name);
}

static void decide(struct node *node)
{
    struct models_population *population = population_of(node);
    const struct neighbour *rival;
    struct population_told told;

    if (!population->has_rival || population->is_copying) return;
    rival = door_neighbour(node, population->rival);
    if (rival == NULL) {
        population->has_rival = false;
        return;
    }
    if (!rival->has_score) return;
    told = told_by(&rival->score);
    tell_unlike(node, &told);
    if (!population_is_comparable(&population->machine, &told)) return; /* it is on its way */
    population->has_rival = false;
    if (population_prefers(&population->machine, &told)) begin_copy(node, rival);
}

/* ---- the copy ---- */

bool models_population_moved(struct node *node)
{
    struct models_population *population = population_of(node);

    if (!population->is_copying) return false;
    if (joiner_state(node->models->joiner) == JOINER_FAILED) give_up_copy(node);
    return true;
}

void models_population_tick(struct node *node)
{
    if (models_are_population(node) && node->state == NODE_TRAINING) decide(node);
}

static bool is_copied(struct node *node)
{
    return population_of(node)->is_copying && joiner_state(node->models->joiner) == JOINER_COMPLETE;
}

bool models_population_copies(const struct node *node)
{
    return population_of(node)->is_copying;
}

static uint64_t median_of(const struct node *node, struct peer_id but, bool is_samples)
{
    uint64_t said[LINKS_MAX];
    size_t count = 0;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (!other->has_progress || peer_id_is_equal(other->id, but)) continue;
        said[count++] = is_samples ? other->progress.samples : other->progress.step;
    }
    return count == 0 ? UINT64_MAX : models_median(said, count);
}

static enum border_next prepare_copy(struct node *node, struct border_job *job)
{
    struct models_population *population = population_of(node);
    const struct message_state_manifest *manifest = joiner_manifest(node->models->joiner);
    const uint64_t every = population->machine.settings.every_steps;

    population->step = population_bound_count(manifest->step, node->step,
                                              median_of(node, population->from, false), every);
    population->samples = population_bound_count(manifest->samples, node->model_samples,
                                                 median_of(node, population->from, true),
                                                 every * (node->options.batch + UINT64_C(1)));
    job->job.cost_ns += 2 * node->options.evaluate_cost_ns;
    return BORDER_SUBMIT;
}

/* NULL: it did not come, or not as ours is. */
static const float *section_of(const struct node *node, enum section section)
{
    size_t count = 0;
    const float *values = joiner_section(node->models->joiner, section, &count);

    return count == node->schema->values[section] ? values : NULL;
}

/* Momentum of another size than any here could be would throw the model away in a few steps. */
static enum rc has_fair_moments(struct node *node, const float *theirs, bool *is_fair)
{
    const size_t count = node->schema->values[SECTION_MOMENTS];
    float *own;
    enum rc rc;

    *is_fair = false;
    if (theirs == NULL) return RC_OK;
    own = mem_aligned(count * sizeof(float));
    rc = own == NULL ? RC_NOMEM : lane_export(node, SECTION_MOMENTS, own);
    if (rc == RC_OK) {
        const double ours = norm_squared(own, count);
        *is_fair = !isfinite(ours) ||
                   norm_squared(theirs, count) <= MOMENTS_LARGER_MOST * MOMENTS_LARGER_MOST * ours;
    }
    mem_free(own);
    return rc;
}

/* RC_AUTH: it is not better than ours. */
static enum rc judge(struct node *node, const struct lane_model *model)
{
    struct models_population *population = population_of(node);
    const struct learner_model other = {model->parameters, model->buffers, model->input};
    struct evaluation ours, theirs;
    struct digest part;
    enum rc rc;

    if (model->parameters == NULL) return RC_AUTH;
    rc = lane_validate(node, NULL, &ours, &part);
    if (rc == RC_OK) rc = lane_validate(node, &other, &theirs, &part);
    if (rc == RC_FORMAT || rc == RC_NONFINITE) return RC_AUTH;
    if (rc != RC_OK) return rc;
    population->ours = ours.loss;
    population->theirs = theirs.loss;
    if (!isfinite(theirs.loss)) return RC_AUTH;
    return theirs.loss < ours.loss || !isfinite(ours.loss) ? RC_OK : RC_AUTH;
}

static void take_copy(struct border_job *job)
{
    struct node *node = job->node;
    struct models_population *population = population_of(node);
    struct lane_model model = {.parameters = section_of(node, SECTION_PARAMETERS),
                               .buffers = section_of(node, SECTION_BUFFERS),
                               .moments = section_of(node, SECTION_MOMENTS),
                               .input = section_of(node, SECTION_INPUT),
                               .step = population->step,
                               .updates = joiner_manifest(node->models->joiner)->updates};
    bool is_fair = false;

    population->ours = population->theirs = (double)NAN;
    population->is_replacing = false;
    job->rc = judge(node, &model);
    if (job->rc == RC_OK) job->rc = has_fair_moments(node, model.moments, &is_fair);
    if (job->rc != RC_OK) return;
    population->leaves_moments = model.moments != NULL && !is_fair;
    if (!is_fair) model.moments = NULL;
    population->is_replacing = true;
    job->rc = lane_replace(node, &model);
    if (job->rc == RC_OK && population->leaves_moments) job->rc = lane_moments_begin_anew(node);
}

static void run_copy(struct border_job *job)
{
    crash_point(CRASH_COPY_ASSIGNING);
    take_copy(job);
    crash_point(CRASH_COPY_ASSIGNED);
}

static void refuse_copy(struct node *node)
{
    struct models_population *population = population_of(node);
    char id[PEER_ID_TEXT];
    bool is_lie = population_refuse(&population->machine, population->from, &population->told,
                                    population->theirs);

    peer_id_format(population->from, id);
    log_line(node->options.log, is_lie ? LOG_WARN : LOG_DEBUG,
             "the model of peer %.8s is not taken: it said loss %.4g, and here that is %.4g, where "
             "this peer's own has %.4g",
             id, population->told.loss, population->theirs, population->ours);
    if (is_lie) door_score(node, population->from, SCORE_CLIPPED); /* a guess, so no ban */
    end_copy(node);
}

static void tell_copy(const struct node *node, const struct population_rates *before)
{
    const struct models_population *population = population_of(node);
    const struct population_told *own = &population->machine.own;
    char id[PEER_ID_TEXT], decay[64] = "";

    peer_id_format(population->from, id);
    if (before->decay > 0 || own->rates.decay > 0) {
        snprintf(decay, sizeof decay, ", decay %.4g is now %.4g", before->decay, own->rates.decay);
    }
    log_info(node->options.log,
             "copied the model of peer %.8s at step %llu, line %016llx: loss %.4g instead of %.4g; "
             "rate %.4g is now %.4g%s%s",
             id, (unsigned long long)node->step, (unsigned long long)own->line, population->theirs,
             population->ours, before->rate, own->rates.rate, decay,
             population->leaves_moments ? "; its optimizer state, far larger than this peer's, is "
                                          "left out"
                                        : "");
}

static void copied(struct node *node, struct border_job *job)
{
    struct models_population *population = population_of(node);
    const struct population_rates before = population->machine.own.rates;

    if (population->patience > PATIENCE_LEAST) population->patience /= 2; /* it came */
    if (job->rc == RC_AUTH) {
        refuse_copy(node);
        return;
    }
    if (job->rc != RC_OK && !population->is_replacing) { /* nothing was changed */
        log_info(node->options.log, "a better model is not taken: %s", rc_text(job->rc));
        end_copy(node);
        return;
    }
    if (job->rc != RC_OK) {
        node_fail(node, job->rc, "cannot take over a copied model");
        return;
    }
    node->step = population->step;
    node->model_samples = population->samples;
    node->lineage = joiner_manifest(node->models->joiner)->lineage;
    population_take(&population->machine, population->from, &population->told, population->theirs,
                    node->step);
    set_rates(node);
    lane_model_replaced(node, false);
    rounds_join(node);
    end_copy(node);
    tell_copy(node, &before);
    models_tell(node, NULL);
    models_population_tell(node, NULL);
}

const struct border_work border_copy = {.name = "copy",
                                        .states = BORDER_TRAINING,
                                        .change = AUDIT_ANYTHING,
                                        .when = is_copied,
                                        .prepare = prepare_copy,
                                        .run = run_copy,
                                        .done = copied};

/* ---- a model that ran away ---- */

void models_population_ran_away(struct node *node)
{
    struct models_population *population = population_of(node);

    population_ran_away(&population->machine);
    set_rates(node);
    meet(node);
    log_warn(node->options.log,
             "the loss is no longer finite: on from the last good model with "
             "half of the rate, %.4g",
             population->machine.own.rates.rate);
}

/* ---- for people ---- */

void models_population_report(const struct node *node, struct node_report *report)
{
    const struct population *machine = &population_of(node)->machine;

    report->is_population = models_are_population(node);
    if (!report->is_population) return;
    report->rate = machine->own.rates.rate;
    report->decay = machine->own.rates.decay;
    report->score = machine->own.loss;
    snprintf(report->line, sizeof report->line, "%016llx", (unsigned long long)machine->own.line);
    report->copies = machine->copies;
    report->copies_refused = machine->refused;
}
