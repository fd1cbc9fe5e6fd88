/*
 * command_peer: one peer as a process that trains a replica of its own: what its flags say of
 * model, data and optimizer, and how it ended as an exit code. What any peer opens is in session.c.
 */
#include "peer/cli/command.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/units.h"
#include "kernels/backend.h"
#include "peer/session/averaged_model.h"
#include "peer/session/initial_model.h"
#include "peer/session/session.h"
#include "peer/session/settings.h"
#include "peer/times.h"
#include "replica/learners/mutual.h"
#include "replica/learners/replica.h"
#include "replica/model/layers.h"
#include "replica/optimizer/optimizer.h"

#include <signal.h>
#include <time.h>

enum { LABELS_BYTES = 16 * 1024 };

/* ---- the learner ---- */

static uint64_t profile_now_ns(void *context)
{
    (void)context;
    return uv_clock_ns();
}

/* In the training lane: inside of its job's span. */
static void trace_part(void *context, const char *part, uint64_t begin_ns, uint64_t end_ns)
{
    const struct session *session = context;
    const struct trace_span span = {.name = part, .begin_ns = begin_ns, .end_ns = end_ns};

    trace_span(&session->tracer, TRACE_LANES + LANE_TRAINING, TRACE_LANES + LANE_TRAINING, &span);
}

/* The learner tells where its time goes, in sums, as it goes, or both. */
static struct profile_clock profile_of(struct session *session)
{
    bool is_wanted = options_flag(session->options, "profile");
    struct profile_clock clock = {.context = session, .is_coarse = !is_wanted};

    if (is_wanted || session->tracer.trace != NULL) clock.now_ns = profile_now_ns;
    if (session->tracer.trace != NULL) clock.on_part = trace_part;
    return clock;
}

static bool has_target(const struct options *options)
{
    return options_real(options, "target-accuracy") > 0 || options_real(options, "target-loss") > 0;
}

static uint32_t batch_of(const struct options *options)
{
    return options_is_set(options, "batch") ? (uint32_t)options_count(options, "batch")
                                            : layers_training(options_text(options, "model")).batch;
}

/* What trains unless told otherwise: the method's, or the model's. */
static const char *usual_optimizer(const struct session *session)
{
    if (session->strategy.optimizer != NULL) return session->strategy.optimizer;
    return layers_training(options_text(session->options, "model")).optimizer;
}

static const char *optimizer_of(const struct session *session)
{
    const char *optimizer = options_text(session->options, "optimizer");

    return optimizer != NULL ? optimizer : usual_optimizer(session);
}

/* What nobody gave follows the samples of a step, and what somebody gave is taken as it is. 0: the
 * rate is that of --optimizer. */
static double rate_of(const struct session *session)
{
    const struct options *options = session->options;
    const uint32_t batch = layers_training(options_text(options, "model")).batch;
    const uint64_t samples = batch_of(options) * options_count(options, "accumulate");

    if (options_is_set(options, "lr")) return options_real(options, "lr");
    if (options_text(options, "optimizer") != NULL || samples == batch) return 0;
    return optimizer_usual_rate(usual_optimizer(session), samples, batch);
}

static void read_goal(const struct options *options, struct node_goal *goal)
{
    goal->steps = options_count(options, "steps");
    goal->epochs = options_real(options, "epochs");
    goal->time_ns = options_ns(options, "time");
    goal->target_accuracy = options_real(options, "target-accuracy");
    goal->target_loss = options_real(options, "target-loss");
    if (goal->steps == 0 && goal->epochs <= 0 && goal->time_ns == 0 && goal->target_accuracy <= 0 &&
        goal->target_loss <= 0) {
        struct layers_training usual = layers_training(options_text(options, "model"));
        goal->steps = usual.steps;
        goal->epochs = usual.epochs;
    }
}

/* What its rounds mix. NULL: its parameters. */
static const struct mutual_options *mutual_of(const struct session *session,
                                              struct mutual_options *mutual)
{
    const struct strategy *strategy = &session->strategy;
    const struct strategy_answers *answers = &strategy->answers;

    if (!strategy->mixes_answers) return NULL;
    *mutual = (struct mutual_options){.relabels = answers->relabels,
                                      .weight = (double)answers->weight,
                                      .burn_steps = answers->burn_steps,
                                      .compress_steps = answers->compress_steps,
                                      .every_steps = strategy->every_steps,
                                      .samples = answers->samples,
                                      .share = (double)answers->share,
                                      .probe = options_text(session->options, "probe")};
    return mutual;
}

static enum rc check_answers(const struct session *session, struct fault *why)
{
    const struct strategy *strategy = &session->strategy;

    if (!strategy->mixes_answers && options_text(session->options, "probe") != NULL) {
        return fault_set(why, RC_USAGE,
                         "--probe: --averaging %s asks nobody; leave it out, or take codistill or "
                         "ec-dnn",
                         strategy->name);
    }
    if (!strategy->mixes_answers || options_text(session->options, "audit") == NULL) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--audit: it watches what rounds make of parameters, and those of "
                     "--averaging %s leave them alone; leave it out",
                     strategy->name);
}

/* What is kept is to be the model of all, and whole; and steps are what others take. */
static enum rc check_keeper(const struct session *session, struct fault *why)
{
    static const char *const goals[] = {"steps", "epochs", "target-accuracy", "target-loss"};
    const struct strategy *strategy = &session->strategy;
    const struct options *options = session->options;
    const char *share = options_text(options, "share");

    if (!options_flag(options, "no-train")) return RC_OK;
    if (!strategy->is_averaging || strategy->mixes_answers || strategy->is_population ||
        strategy->at_end) {
        return fault_set(why, RC_USAGE,
                         "--no-train: with --averaging %s there is no model of all to keep before "
                         "the end; leave it out",
                         strategy->name);
    }
    if (share != NULL && strcmp(share, "all") != 0) {
        return fault_set(
            why, RC_USAGE,
            "--no-train: with --share %s each peer has layers of its own, which nobody "
            "else can keep; leave it out",
            share);
    }
    for (size_t i = 0; i < ARRAY_COUNT(goals); i++) {
        if (!options_is_set(options, goals[i]) || options_is_supposed(options, goals[i])) continue;
        return fault_set(why, RC_USAGE,
                         "--no-train: --%s is a goal of who trains; leave it out, or give --time",
                         goals[i]);
    }
    return RC_OK;
}

/* Models that teach each other are to differ from the beginning. By place in a division of the
 * data a run can be repeated; by identity nobody has another's. */
static uint64_t model_seed(const struct session *session, uint64_t seed, struct peer_id self)
{
    const char *part = options_text(session->options, "shard-of");

    if (!session->strategy.mixes_answers) return 0;
    if (part == NULL) return rng_mix(seed, load_le64(self.bytes));
    return rng_mix(seed, load_le64(hash_of(part, strlen(part)).bytes));
}

/* --share: layers of the trunk; 0: all. */
static enum rc read_trunk(const struct session *session, uint32_t *trunk, struct fault *why)
{
    static const char form[] = "trunk:";
    const char *share = options_text(session->options, "share");
    const struct strategy *strategy = &session->strategy;
    uint64_t layers = 0;

    *trunk = 0;
    if (share == NULL || strcmp(share, "all") == 0) return RC_OK;
    if (strncmp(share, form, sizeof form - 1) != 0 ||
        !units_parse_count(share + sizeof form - 1, &layers) || layers == 0 || layers > 10000) {
        return fault_set(why, RC_USAGE,
                         "--share %s: expected all, or trunk:K with K layers from 1 to 10000",
                         share);
    }
    if (!strategy->is_averaging || strategy->tracks || strategy->mixes_answers ||
        strategy->moments == MOMENTS_AVERAGE) {
        return fault_set(why, RC_USAGE,
                         "--share %s: not with --averaging %s%s; take another method, or share all",
                         share, strategy->name,
                         options_text(session->options, "moments") == NULL ? ""
                                                                           : " --moments average");
    }
    *trunk = (uint32_t)layers;
    return RC_OK;
}

/* Momentum of the mixed model is in the gradients that the optimizer is given; and moments that
 * have rounds of their own must be there. What cannot be parsed is for the learner to say. */
static enum rc check_optimizer(const struct strategy *strategy, const char *optimizer,
                               struct fault *why)
{
    const size_t count = strcspn(optimizer == NULL ? "" : optimizer, ":");
    struct optimizer parsed;

    if (strategy->first_rounds > 0 && optimizer != NULL &&
        optimizer_parse(optimizer, &parsed, why) == RC_OK && optimizer_planes(parsed.kind) == 0) {
        return fault_set(why, RC_USAGE,
                         "--optimizer %s: it keeps no moments, and --averaging %s is for rounds in "
                         "which they travel; use adam, or --averaging local-sgd",
                         optimizer, strategy->name);
    }
    if (strategy->quasi_global == 0 || optimizer == NULL) return RC_OK;
    if (count == 3 && strncmp(optimizer, "sgd", count) == 0) return RC_OK;
    return fault_set(
        why, RC_USAGE,
        "--optimizer %s: --averaging %s has a momentum of its own, formed from how the "
        "mixed model moves; use sgd",
        optimizer, strategy->name);
}

/* What others keep, squares among it, has not done its work once a value was sent. */
static enum rc check_mask(const struct session *session, struct fault *why)
{
    static const char *const known[] = {"sgd", "momentum", "nesterov"};
    const struct learner *learner = session->learner;
    const char *name = "lbfgs"; /* which has no such operation */

    if (session->strategy.moments != MOMENTS_MASK) return RC_OK;
    if (learner->ops->moments_name != NULL) name = learner->ops->moments_name(learner);
    for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
        if (strcmp(name, known[i]) == 0) return RC_OK;
    }
    return fault_set(why, RC_USAGE,
                     "--moments mask: it is of momentum alone, and --optimizer %s keeps other "
                     "buffers; use momentum or nesterov",
                     name);
}

static enum rc create_learner(struct session *session, struct fault *why)
{
    const struct options *options = session->options;
    struct peer_id self = identity_peer_id(session->identity.public_key);
    uint64_t seed = options_count(options, "seed");
    const char *optimizer = options_text(options, "optimizer");
    struct node_goal goal;
    struct mutual_options mutual;
    char labels[LABELS_BYTES];
    struct replica_options replica = {
        .model = options_text(options, "model"),
        .labels = labels,
        .labels_of = options_is_supposed(options, "labels") ? "the swarm's classes" : NULL,
        .data = options_text(options, "data"),
        .tokenizer = options_text(options, "tokenizer"),
        .optimizer = optimizer != NULL ? optimizer : session->strategy.optimizer,
        .schedule = options_text(options, "schedule"),
        .clip = options_real(options, "clip"),
        .accumulate = (uint32_t)options_count(options, "accumulate"),
        .hogwild = (uint32_t)options_count(options, "hogwild"),
        .ema = options_real(options, "ema"),
        .heads_loss = options_text(options, "heads-loss"),
        .holds_out = session->strategy.is_population,
        .lr = rate_of(session),
        .batch = batch_of(options),
        .shard = options_text(options, "shard"),
        .shard_of = options_text(options, "shard-of"),
        .augment = options_text(options, "augment"),
        .seed = seed,
        .mutual = mutual_of(session, &mutual),
        .model_seed = model_seed(session, seed, self),
        .threads = (uint32_t)options_count(options, "threads")};
    enum rc rc = settings_read_labels(options, labels, sizeof labels, why);

    if (rc == RC_OK) rc = read_trunk(session, &replica.trunk, why);
    if (rc == RC_OK) rc = check_optimizer(&session->strategy, replica.optimizer, why);
    if (rc == RC_OK) rc = command_backend(options, &session->backend, why);
    if (rc != RC_OK) return rc;
    CHECK(prefetch_parse(options_text(options, "prefetch"), &replica.prefetch));
    replica.profile = profile_of(session);
    read_goal(options, &goal);
    replica.steps_total = goal.steps;
    replica.epochs_total = goal.epochs;
    /* Who founds a swarm or has a fixed shard takes its data in an order that follows from the seed
     * alone, so that a run can be repeated to the bit; who joins must not repeat another's order.
     */
    if (replica.shard_of != NULL || session->bootstrap.count == 0) {
        replica.stream_seed = rng_mix(seed, 0);
    } else {
        replica.stream_seed = rng_mix(seed, load_le64(self.bytes));
    }
    rc = replica_create(session->backend, &replica, &session->learner, why);
    if (rc == RC_OK) rc = check_mask(session, why);
    if (rc != RC_OK || !session->strategy.is_population) return rc;
    if (session->learner->ops->validate != NULL) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--averaging %s explores learning rates, and --optimizer lbfgs has none; use "
                     "momentum or adamw",
                     session->strategy.name);
}

static enum rc write_model(void *context, struct learner *learner, struct tensor_file *file)
{
    struct model_card card;

    (void)context;
    replica_card(learner, &card);
    return model_save(replica_model(learner), &card, file);
}

static enum rc begin_model(struct session *session, struct fault *why)
{
    return initial_model_load(session->options, session->backend, session->learner, &session->log,
                              why);
}

/* ---- what else is known of it ---- */

static struct json *tell_settings(const struct session *session)
{
    const struct settings_chosen chosen = {.strategy = &session->strategy,
                                           .optimizer = optimizer_of(session),
                                           .rate = rate_of(session),
                                           .batch = batch_of(session->options),
                                           .data = replica_data(session->learner)};

    return settings_tell(session->options, &chosen);
}

static enum rate_scaling scaling_of(const struct options *options)
{
    const char *scaling = options_text(options, "lr-scaling");

    if (strcmp(scaling, "linear") == 0) return RATE_LINEAR;
    return strcmp(scaling, "sqrt") == 0 ? RATE_SQRT : RATE_AS_GIVEN;
}

static void describe(struct session *session, struct node_options *node)
{
    const struct options *options = session->options;
    const struct dataset_info *data = replica_data(session->learner);
    const uint64_t evaluate_samples = options_count(options, "evaluate-samples");

    read_goal(options, &node->goal);
    if (options_flag(options, "no-train")) { /* what the swarm's goal is, is for who trains */
        node->goal = (struct node_goal){
            .time_ns = options_is_supposed(options, "time") ? 0 : options_ns(options, "time")};
    }
    node->batch = batch_of(options) * (uint32_t)options_count(options, "accumulate");
    node->rate_scaling = scaling_of(options);
    node->evaluate_samples = evaluate_samples;
    node->evaluates_sparingly = !has_target(options);
    node->evaluates_at_end = evaluate_samples > 0;
    node->model = write_model;
    snprintf(node->spec, sizeof node->spec, "%s", options_text(options, "model"));
    node->test_samples = data->test_samples;
    node->measured = session->strategy.mixes_answers ? NULL : data->measured;
    node->measured_samples = data->train_samples;
    node->measured_names = data->column_names;
    node->names_count = data->column_names != NULL ? data->channels : 0;
    node->tokens_a_sample = data->input == DATA_TOKENS ? data->width : 0;
    settings_classes(data, session->classes, sizeof session->classes);
    node->classes = session->classes;
}

/* They are looked at when a report is measured. */
static enum rc check_targets(const struct options *options, struct fault *why)
{
    const bool has_loss = options_real(options, "target-loss") > 0;

    if (!has_target(options)) return RC_OK;
    if (options_count(options, "evaluate-samples") > 0) return RC_OK;
    return fault_set(why, RC_USAGE,
                     "--target-%s: with --evaluate-samples 0 it is never measured; give it samples",
                     has_loss ? "loss" : "accuracy");
}

static enum rc check(struct session *session, struct options *options, struct fault *why)
{
    enum rc rc = RC_OK;

    if (!session->folder.has_run) rc = initial_model_spec(options, why);
    if (rc == RC_OK) rc = check_targets(options, why);
    if (rc == RC_OK) rc = check_keeper(session, why);
    return rc == RC_OK ? check_answers(session, why) : rc;
}

/* What is in force and was said by no flag. */
static void tell_chosen(const struct session *session, char *text, size_t cap)
{
    const struct options *options = session->options;
    struct node_goal goal;

    read_goal(options, &goal);
    snprintf(text, cap, "; averaging %s\n; optimizer %s", session->strategy.text,
             optimizer_of(session));
    if (rate_of(session) > 0) {
        snprintf(text + strlen(text), cap - strlen(text), ", lr %g", rate_of(session));
    }
    snprintf(text + strlen(text), cap - strlen(text), ", batch %u", batch_of(options));
    if (goal.steps > 0 && !options_is_set(options, "steps")) {
        snprintf(text + strlen(text), cap - strlen(text), ", steps %llu",
                 (unsigned long long)goal.steps);
    }
    if (goal.epochs > 0 && !options_is_set(options, "epochs")) {
        snprintf(text + strlen(text), cap - strlen(text), ", epochs %g", goal.epochs);
    }
    snprintf(text + strlen(text), cap - strlen(text), "\n");
}

static const struct session_trainer replica_trainer = {
    .check = check,
    .create = create_learner,
    .begin = begin_model,
    .settings = tell_settings,
    .describe = describe,
    .tell_chosen = tell_chosen,
    .events = {.on_listening = session_on_listening,
               .on_report = session_on_report,
               .on_reload = session_on_reload,
               .on_ended = session_on_ended}};

/* ---- the command ---- */

static int exit_of(const struct session *session)
{
    if (session->result.rc != RC_OK)
        return command_failed(session->result.rc, &session->result.why);
    if (session->result.signal == SIGINT) return EXIT_SIGINT;
    if (session->result.signal == SIGTERM) return EXIT_SIGTERM;
    if (session->result.never_averaged) return command_failed(RC_TIMEOUT, &session->result.why);
    return EXIT_DONE;
}

int command_peer(struct options *options)
{
    struct session session = {.options = options,
                              .trainer = &replica_trainer,
                              .folder = {.lock = {.fd = -1}},
                              .is_json = options_flag(options, "json"),
                              .terminal = command_log(options)};
    struct fault why = {""};
    enum rc rc;
    int code;

    session.log = (struct log){LOG_DEBUG, session_on_line, &session};
    rc = session_open(&session, options, &why);
    if (rc == RC_OK) {
        session_say_what_runs(&session);
        uv_env_run(session.env);
        code = exit_of(&session);
        if (session.result.rc == RC_OK && session.result.signal == 0) {
            const enum rc saved =
                averaged_model_save(options, session.backend, session.learner, &why);
            if (saved != RC_OK) code = command_failed(saved, &why);
        }
        if (session.result.rc == RC_OK) session_print_profile(&session);
        if (session.result.rc == RC_OK) session_print_result(&session);
    } else {
        code = command_failed(rc, &why);
    }
    /* Refused by the swarm, or nobody there: nothing was learned, and other flags may follow. */
    if (session.result.rc != RC_OK && session.result.report.own_steps == 0 &&
        peer_folder_is_bare(&session.folder)) {
        rc = session.result.rc;
    }
    session_close(&session);
    peer_folder_close(&session.folder, rc != RC_OK);
    return code;
}
