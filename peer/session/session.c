/*
 * session: what a peer as a process opens and closes, whoever trains in it: the folder, keys,
 * bootstrap list, strategy, checkpoint, node and status page. The trainer (struct session_trainer)
 * brings the learner and says what is known of its goal and its data.
 */
#include "peer/session/session.h"

#include "base/mem.h"
#include "gossip/wire/address.h"
#include "kernels/backend.h"
#include "peer/cli/command.h"

enum { PATH_BYTES = 1024 };

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
    struct uv_env_options env_options = {.is_within = session->is_within,
                                         .way = command_way(options)};
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

/* ---- who it is, and whom it knows ---- */

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

/* ---- the learner and its checkpoint ---- */

static enum rc tell_damaged(const struct session *session, struct fault *why)
{
    const char *out = options_text(session->options, "out");
    const struct fault damage = *why;

    return fault_set(why, RC_FORMAT,
                     "cannot resume from %s: %s; put a copy of that file back, or begin from the "
                     "model with another --out and --init %s/" CHECKPOINT_MODEL_FILE,
                     out, damage.text, out);
}

/* What rounds remember means something to the method that wrote it alone. */
static enum rc resume_given(struct session *session, struct fault *why)
{
    const char *method = session->strategy.name;
    enum rc rc = checkpoint_take(session->given, session->learner, &session->checkpoint, why);

    tensor_file_destroy(session->given);
    session->given = NULL;
    session->is_resumed = rc == RC_OK;
    if (rc != RC_OK || strcmp(session->checkpoint.method, method) == 0) return rc;
    return fault_set(why, RC_MISMATCH,
                     "the state is of averaging %s, and this member has %s; take that, or restore "
                     "none",
                     session->checkpoint.method, method);
}

static enum rc resume(struct session *session, struct fault *why)
{
    enum rc rc;

    if (session->given != NULL) return resume_given(session, why);
    if (session->journal == NULL) return session->trainer->begin(session, why);
    rc = checkpoint_load(session->env, session->learner, &session->checkpoint, why);
    session->is_resumed = rc == RC_OK;
    if (rc == RC_NOT_FOUND) return session->trainer->begin(session, why);
    return rc == RC_FORMAT ? tell_damaged(session, why) : rc;
}

/* ---- the node ---- */

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
        .report_every_ns = options_ns(options, "report-every"),
        .checkpoint_every_ns = options_ns(options, "checkpoint-every"),
        .join_timeout_ns = options_ns(options, "join-timeout"),
        .step_ns = options_ns(options, "step-time"),
        .start_with = (uint32_t)options_count(options, "start-with"),
        .relay_bytes_per_s = relay_bytes_per_s(options),
        .verify = options_real(options, "verify"),
        .serves_predictions = strcmp(options_text(options, "serve-predictions"), "yes") == 0,
        .serves_models = strcmp(options_text(options, "serve-models"), "yes") == 0,
        .quick_bytes = links_quick_bytes(),
        .is_keeper = options_flag(options, "no-train"),
        .keeps_files = session->journal != NULL,
        .audit = session->audit,
        .resume = session->is_resumed ? &session->checkpoint : NULL,
        .admission = &session->credentials.admission,
        .wall_s = uv_wall_s,
        .certificate = session->credentials.certificate,
        .certificate_bytes = session->credentials.certificate_bytes};
    const char *site = options_text(options, "site");
    struct node_events events = session->trainer->events;
    enum rc rc = choose_listen(session, &node, why);

    if (rc == RC_OK && site != NULL) rc = site_parse(site, node.site, why);
    if (rc != RC_OK) return rc;
    session->trainer->describe(session, &node);
    list_addresses(session, bootstrap, book);
    events.context = session;
    if (uv_host_address(session->host, sizeof session->host)) node.host = session->host;
    session->env->ops->entropy(session->env, node.boot.bytes, sizeof node.boot.bytes);
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

/* ---- from beginning to end ---- */

void session_close(struct session *session)
{
    discover_close(&session->discover);
    supervisor_close(&session->supervisor);
    http_destroy(session->http);
    node_destroy(session->node);
    json_destroy(session->settings);
    if (session->env != NULL) uv_env_destroy(session->env);
    audit_close(session->audit);
    trace_destroy(session->tracer.trace);
    session->env = NULL; /* what is logged from here on goes to the terminal alone */
    journal_destroy(session->journal);
    checkpoint_deinit(&session->checkpoint);
    tensor_file_destroy(session->given);
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

enum rc session_open(struct session *session, struct options *options, struct fault *why)
{
    char chosen[1024];
    enum rc rc = secure_start();

    if (rc != RC_OK) return fault_set(why, rc, "libsodium does not start; reinstall it");
    rc = open_folder(session, options, why); /* it says what flags have not said */
    if (rc == RC_OK) rc = check_advertise(options_text(options, "advertise"), why);
    if (rc == RC_OK) {
        rc = bootstrap_parse(options_text(options, "bootstrap"), &session->bootstrap, why);
    }
    if (rc == RC_OK) rc = parse_strategy(session, why);
    if (rc == RC_OK) rc = session->trainer->check(session, options, why);
    if (rc == RC_OK) rc = load_keys(session, why);
    if (rc == RC_OK) rc = load_credentials(session, why);
    if (rc == RC_OK) rc = look_around(session, why);
    if (rc == RC_OK) rc = session->trainer->create(session, why);
    if (rc == RC_OK) rc = resume(session, why);
    if (rc == RC_OK) {
        rc = audit_open(options_text(options, "audit"),
                        session->learner->ops->schema(session->learner)->values[SECTION_MIXED],
                        &session->audit, why);
    }
    if (rc == RC_OK) session->settings = session->trainer->settings(session);
    if (rc == RC_OK) rc = create_node(session, why);
    if (rc == RC_OK) rc = open_http(session, why);
    if (rc == RC_OK) {
        session->trainer->tell_chosen(session, chosen, sizeof chosen);
        if (!session->is_within) {
            supervisor_open(&session->supervisor, session->env, session->node, &session->log);
        }
        rc = peer_folder_keep(&session->folder, options, chosen, session->env, &session->log,
                              &session->book, why);
    }
    return rc;
}
