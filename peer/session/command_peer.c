/*
 * command_peer: one peer as a process: reads what its folder holds, puts a node on the real env,
 * writes what it reports, and turns how it ended into an exit code.
 */
#include "peer/cli/command.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/units.h"
#include "gossip/wire/address.h"
#include "kernels/backend.h"
#include "peer/session/averaged_model.h"
#include "peer/session/initial_model.h"
#include "peer/session/session.h"
#include "peer/session/settings.h"
#include "peer/times.h"
#include "replica/learners/mutual.h"
#include "replica/learners/replica.h"
#include "replica/model/layers.h"

#include <signal.h>
#include <time.h>

enum { PATH_BYTES = 1024, LABELS_BYTES = 16 * 1024 };

/* ---- what the folder remembers ---- */

static enum rc open_trace(struct session *session, struct fault *why)
{
    struct trace_options options = {.path = options_text(session->options, "trace"),
                                    .log = &session->log};

    if (options.path == NULL) return RC_OK;
    return trace_create(&options, &session->tracer.trace, why);
}

static enum rc open_folder(struct session *session, struct options *options, struct fault *why)
{
    struct uv_env_options env_options = {.way = command_way(options)};
    enum rc rc = peer_folder_open(options, &session->folder, why);

    if (rc == RC_OK) rc = open_trace(session, why);
    if (rc != RC_OK) return rc;
    if (session->tracer.trace != NULL) env_options.tracer = &session->tracer;
    env_options.folder = session->folder.path;
    env_options.bytes_per_s = options_bits_per_s(options, "rate-limit") / 8;
    rc = uv_env_create(&env_options, &session->env, why);
    if (rc != RC_OK || session->folder.path == NULL) return rc;
    rc = address_book_load(session->env, &session->log, &session->book, why);
    if (rc != RC_OK) return rc;
    session->book.incarnation++;
    session->journal = journal_create(session->env);
    return session->journal != NULL ? RC_OK : fault_set(why, RC_NOMEM, "out of memory");
}

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

/* ---- putting it together ---- */

static enum rc parse_strategy(struct session *session, struct fault *why)
{
    struct strategy_specs specs = {.averaging = options_text(session->options, "averaging"),
                                   .topology = options_text(session->options, "topology"),
                                   .exchange = options_text(session->options, "exchange"),
                                   .codec = options_text(session->options, "codec"),
                                   .rule = options_text(session->options, "rule"),
                                   .pace = options_text(session->options, "pace"),
                                   .robust = options_text(session->options, "robust"),
                                   .moments = options_text(session->options, "moments")};

    return strategy_parse(&specs, &session->strategy, why);
}

/* By what others call it. Traces of several peers of one machine, whose clock they share, may be
 * put together: their numbers differ. */
static void name_trace(struct session *session)
{
    const struct peer_id self = identity_peer_id(session->identity.public_key);
    const uint8_t *id = self.bytes;
    char text[PEER_ID_TEXT], name[48];

    if (session->tracer.trace == NULL) return;
    session->tracer.process = (uint32_t)id[0] << 16 | (uint32_t)id[1] << 8 | id[2];
    peer_id_format(self, text);
    snprintf(name, sizeof name, "peer %.8s", text);
    trace_name(&session->tracer, name);
}

static enum rc load_keys(struct session *session, struct fault *why)
{
    const char *path = options_text(session->options, "identity");
    char own[PATH_BYTES];
    enum rc rc;

    if (path == NULL) path = peer_folder_identity(&session->folder, own, sizeof own);
    rc = keys_identity(session->env, path, &session->identity, why);
    if (rc != RC_OK) return rc;
    name_trace(session);
    return keys_swarm(options_text(session->options, "swarm-name"),
                      options_text(session->options, "swarm-key"), &session->swarm, why);
}

static enum rc load_credentials(struct session *session, struct fault *why)
{
    const struct options *options = session->options;
    struct credentials_options credentials = {.env = session->env,
                                              .allow = options_text(options, "allow"),
                                              .deny = options_text(options, "deny"),
                                              .certificate = options_text(options, "certificate"),
                                              .authority = options_text(options, "authority"),
                                              .identity = &session->identity,
                                              .run_id = session->swarm.run_id,
                                              .log = &session->log};

    return credentials_init(&session->credentials, &credentials, uv_wall_s(), why);
}

/* Whoever is there already is joined; else this peer begins, and others find it. */
static enum rc look_around(struct session *session, struct fault *why)
{
    const char *name = options_text(session->options, "discover");
    struct bootstrap *bootstrap = &session->bootstrap;
    enum rc rc;

    if (name == NULL) return RC_OK;
    rc = discover_open(&session->discover, name, &session->swarm, &session->log, why);
    if (rc != RC_OK || bootstrap->count > 0) return rc;
    log_info(&session->log, "looking for peers called %s on the local network", name);
    if (discover_look(&session->discover, DISCOVER_LOOK_NS, bootstrap->addresses[0])) {
        bootstrap->count = 1;
        session->is_bootstrap_heard = true;
        log_info(&session->log, "found one at %s", bootstrap->addresses[0]);
    } else {
        log_info(&session->log, "nobody is there yet");
    }
    return RC_OK;
}

static void on_reload(void *context)
{
    credentials_reload(&((struct session *)context)->credentials);
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

static const char *optimizer_of(const struct session *session)
{
    const char *optimizer = options_text(session->options, "optimizer");

    if (optimizer == NULL) optimizer = session->strategy.optimizer;
    if (optimizer != NULL) return optimizer;
    return layers_training(options_text(session->options, "model")).optimizer;
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
                         strategy->moments == MOMENTS_AVERAGE ? " --moments average" : "");
    }
    *trunk = (uint32_t)layers;
    return RC_OK;
}

/* Momentum of the mixed model is in the gradients that the optimizer is given. */
static enum rc check_optimizer(const struct strategy *strategy, const char *optimizer,
                               struct fault *why)
{
    const size_t count = strcspn(optimizer == NULL ? "" : optimizer, ":");

    if (strategy->quasi_global == 0 || optimizer == NULL) return RC_OK;
    if (count == 3 && strncmp(optimizer, "sgd", count) == 0) return RC_OK;
    return fault_set(
        why, RC_USAGE,
        "--optimizer %s: --averaging %s has a momentum of its own, formed from how the "
        "mixed model moves; use sgd",
        optimizer, strategy->name);
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
        .lr = options_real(options, "lr"),
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

static enum rc tell_damaged(const struct session *session, struct fault *why)
{
    const char *out = options_text(session->options, "out");
    const struct fault damage = *why;

    return fault_set(why, RC_FORMAT,
                     "cannot resume from %s: %s; put a copy of that file back, or begin from the "
                     "model with another --out and --init %s/" CHECKPOINT_MODEL_FILE,
                     out, damage.text, out);
}

static enum rc resume(struct session *session, struct fault *why)
{
    enum rc rc;

    if (session->journal == NULL) return begin_model(session, why);
    rc = checkpoint_load(session->env, session->learner, &session->checkpoint, why);
    session->is_resumed = rc == RC_OK;
    if (rc == RC_NOT_FOUND) return begin_model(session, why);
    return rc == RC_FORMAT ? tell_damaged(session, why) : rc;
}

/* Who joins others on a machine with a peer on the usual port takes a free one. */
static enum rc choose_listen(const struct session *session, struct node_options *node,
                             struct fault *why)
{
    const bool is_public = session->swarm.is_public;

    node->listen = options_text(session->options, "listen");
    if (node->listen == NULL) {
        node->listen = is_public ? "127.0.0.1:7077" : "0.0.0.0:7077";
        if (node->bootstrap_count > 0) node->listen_else = is_public ? "127.0.0.1:0" : "0.0.0.0:0";
    }
    if (command_is_loopback(node->listen) || !is_public) return RC_OK;
    if (!options_flag(session->options, "public")) {
        return fault_set(why, RC_USAGE,
                         "--listen %s: anybody who can reach it could join; pass --swarm-key FILE "
                         "(see 'grapevine keygen'), or --public if that is what you want",
                         node->listen);
    }
    log_warn(&session->log, "public swarm: anybody who can reach %s may join and read",
             node->listen);
    return RC_OK;
}

/* What this peer relays for others: a tenth of its own rate at most. */
static uint64_t relay_bytes_per_s(const struct options *options)
{
    uint64_t relay = options_bits_per_s(options, "relay") / 8;
    uint64_t limit = options_bits_per_s(options, "rate-limit") / 8;

    return limit > 0 && relay > limit / 10 ? limit / 10 : relay;
}

static void tell_settings(struct session *session)
{
    const struct settings_chosen chosen = {.strategy = &session->strategy,
                                           .optimizer = optimizer_of(session),
                                           .batch = batch_of(session->options),
                                           .data = replica_data(session->learner)};

    session->settings = settings_tell(session->options, &chosen);
}

static enum rate_scaling scaling_of(const struct options *options)
{
    const char *scaling = options_text(options, "lr-scaling");

    if (strcmp(scaling, "linear") == 0) return RATE_LINEAR;
    return strcmp(scaling, "sqrt") == 0 ? RATE_SQRT : RATE_AS_GIVEN;
}

/* Whom it dials first, and whom it remembers. */
static void list_addresses(const struct session *session, const char **bootstrap, const char **book)
{
    size_t anchors = session->book.anchors_count;

    for (size_t i = 0; i < session->bootstrap.count; i++) {
        bootstrap[i] = session->bootstrap.addresses[i];
    }
    for (size_t i = 0; i < anchors; i++) {
        book[i] = session->book.anchors[i];
    }
    for (size_t i = 0; i < session->book.count; i++) {
        book[anchors + i] = session->book.addresses[i];
    }
}

static void describe_data(struct session *session, struct node_options *node)
{
    const struct dataset_info *data = replica_data(session->learner);

    node->test_samples = data->test_samples;
    node->measured = session->strategy.mixes_answers ? NULL : data->measured;
    node->measured_samples = data->train_samples;
    node->measured_names = data->column_names;
    node->names_count = data->column_names != NULL ? data->channels : 0;
    node->tokens_a_sample = data->input == DATA_TOKENS ? data->width : 0;
    settings_classes(data, session->classes, sizeof session->classes);
    node->classes = session->classes;
}

static enum rc create_node(struct session *session, struct fault *why)
{
    const struct options *options = session->options;
    const char *bootstrap[BOOTSTRAP_MAX], *book[ADDRESS_BOOK_ANCHORS_MAX + ADDRESS_BOOK_MAX];
    struct node_options node = {
        .identity = &session->identity,
        .swarm = &session->swarm,
        .strategy = &session->strategy,
        .settings = session->settings,
        .log = &session->log,
        .incarnation = session->book.incarnation == 0 ? 1 : session->book.incarnation,
        .bytes_per_s = options_bits_per_s(options, "rate-limit") / 8,
        .advertise = options_text(options, "advertise"),
        .bootstrap = bootstrap,
        .bootstrap_count = session->bootstrap.count,
        .is_bootstrap_heard = session->is_bootstrap_heard,
        .book = book,
        .book_count = session->book.anchors_count + session->book.count,
        .seed = options_count(options, "seed"),
        .batch = batch_of(options) * (uint32_t)options_count(options, "accumulate"),
        .report_every_ns = options_ns(options, "report-every"),
        .checkpoint_every_ns = options_ns(options, "checkpoint-every"),
        .join_timeout_ns = options_ns(options, "join-timeout"),
        .step_ns = options_ns(options, "step-time"),
        .rate_scaling = scaling_of(options),
        .start_with = (uint32_t)options_count(options, "start-with"),
        .evaluate_samples = options_count(options, "evaluate-samples"),
        .evaluates_sparingly = !has_target(options),
        .evaluates_at_end = options_count(options, "evaluate-samples") > 0,
        .relay_bytes_per_s = relay_bytes_per_s(options),
        .serves_predictions = strcmp(options_text(options, "serve-predictions"), "yes") == 0,
        .serves_models = strcmp(options_text(options, "serve-models"), "yes") == 0,
        .quick_bytes = links_quick_bytes(),
        .keeps_files = session->journal != NULL,
        .audit = session->audit,
        .model = write_model,
        .resume = session->is_resumed ? &session->checkpoint : NULL,
        .admission = &session->credentials.admission,
        .wall_s = uv_wall_s,
        .certificate = session->credentials.certificate,
        .certificate_bytes = session->credentials.certificate_bytes};
    const char *site = options_text(options, "site");
    struct node_events events = {.context = session,
                                 .on_listening = session_on_listening,
                                 .on_report = session_on_report,
                                 .on_ended = session_on_ended};
    enum rc rc = choose_listen(session, &node, why);

    if (rc == RC_OK && site != NULL) rc = site_parse(site, node.site, why);
    if (rc != RC_OK) return rc;
    describe_data(session, &node);
    list_addresses(session, bootstrap, book);
    if (credentials_has_lists(&session->credentials)) events.on_reload = on_reload;
    read_goal(options, &node.goal);
    if (uv_host_address(session->host, sizeof session->host)) node.host = session->host;
    session->env->ops->entropy(session->env, node.boot.bytes, sizeof node.boot.bytes);
    snprintf(node.spec, sizeof node.spec, "%s", options_text(options, "model"));
    return node_create(session->env, session->learner, &node, &events, &session->node, why);
}

static struct json *session_status(void *context)
{
    return node_status(((struct session *)context)->node, SIZE_MAX);
}

static enum rc open_http(struct session *session, struct fault *why)
{
    const char *address = options_text(session->options, "http");
    struct http_source source = {session, session_status};
    char bound[ADDRESS_BYTES_MAX];
    enum rc rc;

    if (address == NULL) return RC_OK;
    rc = http_create(session->env, address, &source, &session->http, bound, sizeof bound, why);
    if (rc != RC_OK) return rc;
    if (!command_is_loopback(bound)) {
        log_warn(&session->log, "--http: anyone who can reach %s may read this peer's status",
                 bound);
    }
    if (session->is_json) {
        struct json *json = json_object_create();

        json_set_text(json, "event", "http");
        json_set_text(json, "address", bound);
        command_print_json(json);
        fflush(stdout);
    }
    log_info(&session->log, "status page: http://%s/", bound);
    return RC_OK;
}

static void close_session(struct session *session)
{
    discover_close(&session->discover);
    http_destroy(session->http);
    node_destroy(session->node);
    json_destroy(session->settings);
    if (session->env != NULL) uv_env_destroy(session->env);
    audit_close(session->audit);
    trace_destroy(session->tracer.trace);
    session->env = NULL; /* what is logged from here on goes to the terminal alone */
    journal_destroy(session->journal);
    checkpoint_deinit(&session->checkpoint);
    if (session->learner != NULL) session->learner->ops->destroy(session->learner);
    if (session->backend != NULL) backend_destroy(session->backend);
    credentials_deinit(&session->credentials);
    mem_wipe(&session->identity, sizeof session->identity);
    mem_wipe(&session->swarm, sizeof session->swarm);
}

static enum rc check_advertise(const char *address, struct fault *why)
{
    if (address == NULL || address_is_valid(address)) return RC_OK;
    return fault_set(why, RC_USAGE, "--advertise %s: not HOST:PORT; write it like 192.0.2.7:7077",
                     address);
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

/* What is in force and was said by no flag. */
static void tell_chosen(const struct session *session, char *text, size_t cap)
{
    const struct options *options = session->options;
    struct node_goal goal;

    read_goal(options, &goal);
    snprintf(text, cap, "; averaging %s\n; optimizer %s, batch %u", session->strategy.text,
             optimizer_of(session), batch_of(options));
    if (goal.steps > 0 && !options_is_set(options, "steps")) {
        snprintf(text + strlen(text), cap - strlen(text), ", steps %llu",
                 (unsigned long long)goal.steps);
    }
    if (goal.epochs > 0 && !options_is_set(options, "epochs")) {
        snprintf(text + strlen(text), cap - strlen(text), ", epochs %g", goal.epochs);
    }
    snprintf(text + strlen(text), cap - strlen(text), "\n");
}

static enum rc open_session(struct session *session, struct options *options, struct fault *why)
{
    char chosen[1024];
    enum rc rc = secure_start();

    if (rc != RC_OK) return fault_set(why, rc, "libsodium does not start; reinstall it");
    rc = open_folder(session, options, why); /* it says what flags have not said */
    if (rc == RC_OK && !session->folder.has_run) rc = initial_model_spec(options, why);
    if (rc == RC_OK) rc = check_advertise(options_text(options, "advertise"), why);
    if (rc == RC_OK) rc = check_targets(options, why);
    if (rc == RC_OK) {
        rc = bootstrap_parse(options_text(options, "bootstrap"), &session->bootstrap, why);
    }
    if (rc == RC_OK) rc = parse_strategy(session, why);
    if (rc == RC_OK) rc = check_answers(session, why);
    if (rc == RC_OK) rc = load_keys(session, why);
    if (rc == RC_OK) rc = load_credentials(session, why);
    if (rc == RC_OK) rc = look_around(session, why);
    if (rc == RC_OK) rc = create_learner(session, why);
    if (rc == RC_OK) rc = resume(session, why);
    if (rc == RC_OK) {
        rc = audit_open(options_text(options, "audit"),
                        session->learner->ops->schema(session->learner)->values[SECTION_MIXED],
                        &session->audit, why);
    }
    if (rc == RC_OK) tell_settings(session);
    if (rc == RC_OK) rc = create_node(session, why);
    if (rc == RC_OK) rc = open_http(session, why);
    if (rc == RC_OK) {
        tell_chosen(session, chosen, sizeof chosen);
        rc = peer_folder_keep(&session->folder, options, chosen, session->env, &session->log,
                              &session->book, why);
    }
    return rc;
}

static int exit_of(const struct session *session)
{
    if (session->result.rc != RC_OK)
        return command_failed(session->result.rc, &session->result.why);
    if (session->result.signal == SIGHUP) return EXIT_SIGHUP;
    if (session->result.signal == SIGINT) return EXIT_SIGINT;
    if (session->result.signal == SIGTERM) return EXIT_SIGTERM;
    if (session->result.never_averaged) return command_failed(RC_TIMEOUT, &session->result.why);
    return EXIT_DONE;
}

int command_peer(struct options *options)
{
    struct session session = {.options = options,
                              .folder = {.lock = {.fd = -1}},
                              .is_json = options_flag(options, "json"),
                              .terminal = command_log(options)};
    struct fault why = {""};
    enum rc rc;
    int code;

    session.log = (struct log){LOG_DEBUG, session_on_line, &session};
    rc = open_session(&session, options, &why);
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
    close_session(&session);
    peer_folder_close(&session.folder, rc != RC_OK);
    return code;
}
