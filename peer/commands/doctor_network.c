/*
 * The doctor's way to the swarm: an observer's links to all bootstrap addresses at once, which
 * tells a dead host from a closed port, from a stranger's service, from another swarm; and a
 * dial-back by each that answers, as a peer would ask for it (gossip/reach/reach.h). One loop, 5
 * seconds.
 */
#include "peer/commands/doctor.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/reach/reach.h"
#include "gossip/wire/address.h"
#include "kernels/backend.h"
#include "peer/cli/command.h"
#include "peer/files/credentials.h"
#include "peer/files/keys.h"
#include "peer/link/link.h"
#include "peer/times.h"
#include "replica/learners/replica.h"

#include <stdlib.h>
#include <unistd.h>

struct visit { /* of a bootstrap address */
    bool is_over, is_open;
    struct peer_id peer;
};

/* Our own dial of --advertise. */
struct loop {
    const char *address;           /* NULL: none to be dialled */
    bool is_over, is_us, is_other; /* other: somebody else answered */
    char why[200];                 /* it did not come back */
};

struct network {
    struct doctor *doctor;
    const struct bootstrap *bootstrap;
    struct visit visits[BOOTSTRAP_MAX];
    struct loop loop;
    struct env *env;
    struct links *links;
    struct reach *reach;
    struct outbox outbox;
    struct identity identity;
    struct swarm_secret swarm;
    struct log log;
    struct digest schema; /* of --model and --data */
    bool has_schema, is_listening;
    uint16_t port, dialled_port;  /* that was bound; that others are to dial */
    uint64_t begun_ns, opened_ns; /* opened: the first link; 0: none */
    bool is_clock_wrong;
};

static void on_line(void *context, enum log_level level, const char *line)
{
    (void)context, (void)level, (void)line; /* findings say it all */
}

/* ---- where we listen ---- */

static void check_port(struct network *network)
{
    struct doctor *doctor = network->doctor;
    const char *address = options_text(doctor->options, "listen");
    bool is_open = options_text(doctor->options, "swarm-key") != NULL;
    char bound[ADDRESS_BYTES_MAX], what[96];
    struct fault why = {""};
    struct address parsed;

    if (address == NULL) address = is_open ? "0.0.0.0:7077" : "127.0.0.1:7077";
    snprintf(what, sizeof what, "listen %.80s", address);
    if (network->env->ops->listen(network->env, address, bound, sizeof bound, &why) != RC_OK) {
        doctor_add(doctor, VERDICT_BROKEN, what,
                   "stop what uses it (ss -ltnp shows it) or choose another --listen", "%s",
                   why.text);
        return;
    }
    network->is_listening = true;
    if (address_parse(bound, &parsed) == RC_OK) network->port = parsed.port;
    network->dialled_port = network->port;
    doctor_add(doctor, VERDICT_FINE, what, "", "can be bound");
}

/* What others are to dial, and so what they are asked to dial back to. */
static void check_advertise(struct network *network)
{
    const char *address = options_text(network->doctor->options, "advertise");
    struct address parsed;
    char what[96];

    if (address == NULL) return;
    snprintf(what, sizeof what, "advertise %.80s", address);
    if (address_parse(address, &parsed) != RC_OK || parsed.port == 0) {
        doctor_add(network->doctor, VERDICT_BROKEN, what, "write it like 192.0.2.7:7077",
                   "not HOST:PORT");
    } else if (network->is_listening) {
        network->loop.address = address;
        network->dialled_port = parsed.port;
    } else {
        doctor_add(network->doctor, VERDICT_NOTE, what, "stop what uses the port and ask again",
                   "not looked at: --listen cannot be bound");
    }
}

/* ---- what the bootstrap addresses say ---- */

static struct visit *visit_of(struct network *network, const char *address)
{
    for (size_t i = 0; i < network->bootstrap->count; i++) {
        if (strcmp(network->bootstrap->addresses[i], address) == 0) return &network->visits[i];
    }
    return NULL;
}

/* What to do when a dial ends like this. */
static const char *fix_of(enum rc rc, const char *why)
{
    if (strstr(why, "not found") != NULL) {
        return "check the name, or write the number of the host instead";
    }
    if (strstr(why, "refused this peer") != NULL) {
        return "ask the swarm's owner to let this key in, or stop the other process that uses it";
    }
    if (strstr(why, "not a grapevine peer") != NULL && rc == RC_AUTH) {
        return "compare --swarm-name and --swarm-key with those of that peer, and the port";
    }
    if (strstr(why, "refused") != NULL) {
        return "start the peer there, or check the port; a firewall may also refuse";
    }
    return "check the address, that the host is up, and that no firewall drops the port";
}

static bool is_own_dial(const struct network *network, const char *address)
{
    return network->loop.address != NULL && strcmp(network->loop.address, address) == 0;
}

static void on_dial_failed(void *context, const char *address, enum rc rc, const char *why,
                           const struct peer_id *peer)
{
    struct network *network = context;
    struct visit *visit = visit_of(network, address);
    struct peer_id self = identity_peer_id(network->identity.public_key);
    char what[96];

    if (is_own_dial(network, address) && !network->loop.is_over) {
        network->loop.is_over = true;
        network->loop.is_us = rc == RC_REPLAY && peer != NULL && peer_id_is_equal(*peer, self);
        network->loop.is_other = rc == RC_AUTH || (rc == RC_REPLAY && !network->loop.is_us);
        snprintf(network->loop.why, sizeof network->loop.why, "%s", why);
    }
    if (visit == NULL || visit->is_over) return;
    visit->is_over = true;
    snprintf(what, sizeof what, "bootstrap %s", address);
    if (rc == RC_REPLAY && peer != NULL && peer_id_is_equal(*peer, self)) {
        doctor_add(network->doctor, VERDICT_NOTE, what, "name another peer",
                   "leads back to this machine itself");
        return;
    }
    if (rc == RC_REPLAY && peer != NULL) {
        doctor_add(network->doctor, VERDICT_NOTE, what, "one of the addresses is enough",
                   "leads to the same peer as another address");
        return;
    }
    doctor_add(network->doctor, VERDICT_BROKEN, what, fix_of(rc, why), "%s", why);
}

static void tell_model(struct network *network, const char *address, const struct hello *hello)
{
    const char *model = options_text(network->doctor->options, "model");
    char what[96];

    snprintf(what, sizeof what, "model of %s", address);
    if (strstr(hello->method, METHOD_ANSWERS) != NULL) {
        doctor_add(network->doctor, VERDICT_FINE, what, "",
                   "it trains '%s' and mixes answers: peers may have any --model", hello->spec);
    } else if (!network->has_schema) {
        doctor_add(network->doctor, VERDICT_NOTE, what, "pass --model (and --data) to compare them",
                   "it trains '%s'", hello->spec);
    } else if (digest_is_equal(hello->schema, network->schema)) {
        doctor_add(network->doctor, VERDICT_FINE, what, "", "it trains the same, '%s'", model);
    } else {
        doctor_add(network->doctor, VERDICT_BROKEN, what,
                   "start this peer with the --model and --data of the swarm",
                   "it trains '%s', this peer would train '%s'%s", hello->spec, model,
                   strcmp(hello->spec, model) == 0 ? " on data of another shape" : "");
    }
}

static void on_open(void *context, struct peer_id peer, const struct hello *hello,
                    const char *address, bool is_dialled)
{
    struct network *network = context;
    struct visit *visit = visit_of(network, address);
    struct reach_link link = {.peer = peer, .is_dialled = true, .is_asked = network->is_listening};
    uint64_t now_ns = network->env->ops->now_ns(network->env);
    char what[96];

    if (is_dialled && is_own_dial(network, address) && !network->loop.is_over) {
        network->loop.is_over = network->loop.is_other = true;
        snprintf(network->loop.why, sizeof network->loop.why, "another peer of the swarm answers");
    }
    if (!is_dialled || visit == NULL || visit->is_over) return;
    visit->is_over = visit->is_open = true;
    visit->peer = peer;
    if (network->opened_ns == 0) network->opened_ns = now_ns;
    snprintf(what, sizeof what, "bootstrap %s", address);
    doctor_add(network->doctor, VERDICT_FINE, what, "",
               "reachable: a peer of this swarm, which sees us at %s",
               hello->observed[0] == '\0' ? "an address it does not tell" : hello->observed);
    tell_model(network, address, hello);
    snprintf(link.observed, sizeof link.observed, "%s", hello->observed);
    snprintf(link.remote, sizeof link.remote, "%s", address);
    reach_on_link(network->reach, &link, now_ns);
}

static void on_message(void *context, struct peer_id peer, const struct message *message)
{
    struct network *network = context;

    if (message->type != MESSAGE_DIALBACK) return;
    reach_on_message(network->reach, peer, message, network->env->ops->now_ns(network->env),
                     &network->outbox);
}

static void on_closed(void *context, struct peer_id peer, enum rc rc, const char *why)
{
    struct network *network = context;

    (void)rc, (void)why;
    reach_on_link_lost(network->reach, peer);
}

static void on_dialback(void *context, struct peer_id peer, uint64_t nonce)
{
    struct network *network = context;

    reach_on_arrived(network->reach, peer, nonce, network->env->ops->now_ns(network->env));
}

/* ---- is there another way? ---- */

/* What other programs of this machine go out through. It is named, and its value is not, which may
 * hold a password. */
static void tell_way(struct network *network)
{
    static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    const struct way_flags flags = command_way(network->doctor->options);
    struct way way;
    char text[300], fix[120];

    if (way_parse(&flags, &way, NULL) == RC_OK && way.kind != WAY_DIRECT) {
        way_describe(&way, text, sizeof text);
        doctor_add(network->doctor, VERDICT_FINE, "way out", "", "all dials go through %s", text);
    }
    mem_wipe(&way, sizeof way);
    if (flags.proxy != NULL || flags.dial_command != NULL) return;
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        const char *value = getenv(names[i]);

        if (value == NULL || value[0] == '\0') continue;
        snprintf(fix, sizeof fix, "if dials come to nothing, pass --proxy \"$%s\"", names[i]);
        doctor_add(network->doctor, VERDICT_NOTE, "way out", fix,
                   "%s is set: other programs here go out through a proxy, and this peer does not",
                   names[i]);
        return;
    }
}

/* ---- can others dial us? ---- */

static void tell_reach(struct network *network)
{
    struct reach_view view;
    char fix[200];

    if (network->opened_ns == 0 || !network->is_listening) return; /* said above */
    reach_view(network->reach, &view);
    snprintf(fix, sizeof fix,
             "to be dialled, let TCP port %u in through firewall and router, and pass --advertise "
             "if it has another number outside; without it this peer still trains, over links it "
             "dials itself",
             (unsigned)network->dialled_port);
    if (view.reached > 0) {
        doctor_add(network->doctor, VERDICT_FINE, "reachability", "",
                   "public: %u of %u peers that were asked could dial back", view.reached,
                   view.reached + view.failed);
    } else if (view.failed > 0) {
        doctor_add(network->doctor, VERDICT_NOTE, "reachability", fix,
                   "outbound-only: none of %u peers that were asked could dial port %u here",
                   view.failed, (unsigned)network->dialled_port);
    } else {
        doctor_add(network->doctor, VERDICT_NOTE, "reachability", fix,
                   "no dial-back came in %d s: busy peers, or a firewall that drops connections",
                   (int)(DOCTOR_DIALBACK_NS / NS_PER_S));
    }
}

/* Whoever others dial at --advertise has to be this machine. Routers seldom let one in from inside
 * at the address outside, so a peer that could dial back to that port counts, too, and silence
 * proves nothing where no peer has tried. */
static void tell_advertised(struct network *network)
{
    const struct loop *loop = &network->loop;
    struct reach_view view;
    char what[96], fix[200];

    if (loop->address == NULL) return;
    reach_view(network->reach, &view);
    snprintf(what, sizeof what, "advertise %.80s", loop->address);
    snprintf(fix, sizeof fix,
             "let the router pass that port on to port %u of this machine, or correct --advertise",
             (unsigned)network->port);
    if (loop->is_us) {
        doctor_add(network->doctor, VERDICT_FINE, what, "", "leads back to this machine");
    } else if (strstr(loop->why, "not found") != NULL) {
        doctor_add(network->doctor, VERDICT_BROKEN, what, fix_of(RC_IO, loop->why), "%s",
                   loop->why);
    } else if (view.reached > 0) {
        doctor_add(network->doctor, VERDICT_NOTE, what,
                   "see that the host in it is the one that they see",
                   "not from here (%s), but peers could dial back to that port of %s", loop->why,
                   view.observed[0] == '\0' ? "this machine" : view.observed);
    } else if (loop->is_other || view.failed > 0 || command_is_loopback(loop->address)) {
        doctor_add(network->doctor, VERDICT_BROKEN, what, fix, "does not lead back here: %s",
                   loop->why);
    } else {
        doctor_add(network->doctor, VERDICT_NOTE, what,
                   network->opened_ns == 0 ? "name a peer with --bootstrap, which will try it"
                                           : "ask again, or name another peer with --bootstrap",
                   "not from here (%s), and no peer has tried: few routers let one in from inside",
                   loop->why);
    }
}

/* ---- the loop ---- */

static bool is_done(const struct network *network, uint64_t now_ns)
{
    struct reach_view view;
    uint32_t opened = 0;

    if (now_ns >= network->begun_ns + DOCTOR_LIMIT_NS) return true;
    for (size_t i = 0; i < network->bootstrap->count; i++) {
        if (!network->visits[i].is_over) return false;
        opened += network->visits[i].is_open;
    }
    if (network->loop.address != NULL && !network->loop.is_over) return false;
    if (opened == 0 || !network->is_listening) return true;
    reach_view(network->reach, &view);
    return view.reached + view.failed >= (opened < 2 ? opened : 2) ||
           now_ns >= network->opened_ns + DOCTOR_DIALBACK_NS;
}

static void finish(struct network *network)
{
    for (size_t i = 0; i < network->bootstrap->count; i++) {
        on_dial_failed(network, network->bootstrap->addresses[i], RC_TIMEOUT,
                       "no answer: it cannot be reached, or does not speak", NULL);
    }
    if (network->loop.address != NULL) {
        on_dial_failed(network, network->loop.address, RC_TIMEOUT, "no answer", NULL);
    }
    tell_reach(network);
    tell_advertised(network);
    network->env->ops->stop(network->env);
}

static void on_wake(void *context)
{
    struct network *network = context;
    uint64_t now_ns = network->env->ops->now_ns(network->env);

    network->is_clock_wrong =
        network->is_clock_wrong || now_ns < network->begun_ns + DOCTOR_TICK_NS / 2;
    links_tick(network->links, now_ns);
    reach_tick(network->reach, now_ns, &network->outbox);
    for (uint32_t i = 0; i < network->outbox.count; i++) {
        (void)links_send_inner(network->links, network->outbox.entries[i].to,
                               network->outbox.entries[i].inner); /* closed links: on_closed */
    }
    outbox_clear(&network->outbox);
    if (is_done(network, now_ns)) {
        finish(network);
    } else {
        network->env->ops->wake_at(network->env, now_ns + DOCTOR_TICK_NS);
    }
}

static void env_accepted(void *context, uint64_t link, const char *remote)
{
    links_on_accepted(((struct network *)context)->links, link, remote);
}

static void env_connected(void *context, uint64_t link)
{
    links_on_connected(((struct network *)context)->links, link);
}

static void env_frame(void *context, uint64_t link, uint8_t *frame, size_t count)
{
    links_on_frame(((struct network *)context)->links, link, frame, count);
}

static void env_drain(void *context, uint64_t link)
{
    links_on_drain(((struct network *)context)->links, link);
}

static void env_lost(void *context, uint64_t link, enum rc rc, const char *why)
{
    links_on_lost(((struct network *)context)->links, link, rc, why);
}

static void env_signal(void *context, int signal)
{
    struct network *network = context;

    (void)signal;
    network->env->ops->stop(network->env);
}

static void dial_all(struct network *network)
{
    network->begun_ns = network->env->ops->now_ns(network->env);
    for (size_t i = 0; i < network->bootstrap->count; i++) {
        const char *address = network->bootstrap->addresses[i];
        enum rc rc = links_dial(network->links, address);

        if (rc != RC_OK) on_dial_failed(network, address, rc, rc_text(rc), NULL);
    }
    if (network->loop.address != NULL) {
        enum rc rc = links_dial(network->links, network->loop.address);

        if (rc != RC_OK) on_dial_failed(network, network->loop.address, rc, rc_text(rc), NULL);
    }
    network->env->ops->wake_at(network->env, network->begun_ns + DOCTOR_TICK_NS);
    uv_env_run(network->env);
}

/* ---- before ---- */

/* Who we say we are: --identity, or that of --out, if the file is there, so that allow-lists are
 * tested too. */
static enum rc load_keys(struct network *network, struct fault *why)
{
    const struct options *options = network->doctor->options;
    const char *path = options_text(options, "identity"), *folder = options_text(options, "out");
    char own[1024];
    enum rc rc;

    if (path == NULL && folder != NULL) {
        snprintf(own, sizeof own, "%s/identity.key", folder);
        path = own;
    }
    if (path != NULL && access(path, R_OK) != 0) path = NULL;
    rc = keys_identity(network->env, path, &network->identity, NULL);
    if (rc != RC_OK) rc = keys_identity(network->env, NULL, &network->identity, why);
    if (rc != RC_OK) return rc;
    rc = keys_swarm(options_text(options, "swarm-name"), options_text(options, "swarm-key"),
                    &network->swarm, why);
    if (rc == RC_OK) return RC_OK;
    return keys_swarm(options_text(options, "swarm-name"), NULL, &network->swarm, why);
}

/* What --model and --data amount to; made only to be compared. */
static void load_schema(struct network *network)
{
    const struct options *options = network->doctor->options;
    struct replica_options replica = {.model = options_text(options, "model"),
                                      .data = options_text(options, "data"),
                                      .tokenizer = options_text(options, "tokenizer"),
                                      .optimizer = "sgd",
                                      .schedule = "constant",
                                      .accumulate = 1,
                                      .batch = 1,
                                      .shard = "iid",
                                      .seed = 1,
                                      .threads = 1};
    struct backend *backend = NULL;
    struct learner *learner = NULL;
    struct fault why = {""};
    enum rc rc;

    if (replica.model == NULL) return;
    rc = command_backend(options, &backend, &why);
    if (rc == RC_OK) rc = replica_create(backend, &replica, &learner, &why);
    if (rc == RC_OK) {
        network->schema = schema_digest(learner->ops->schema(learner));
        network->has_schema = true;
        learner->ops->destroy(learner);
    } else {
        doctor_add(network->doctor, VERDICT_BROKEN, "model", "see grapevine peer --help", "%s",
                   why.text);
    }
    if (backend != NULL) backend_destroy(backend);
}

/* --allow and --deny as a peer would read them. */
static void check_lists(struct network *network)
{
    const struct options *options = network->doctor->options;
    struct credentials_options given = {.env = network->env,
                                        .allow = options_text(options, "allow"),
                                        .deny = options_text(options, "deny"),
                                        .authority = options_text(options, "authority"),
                                        .identity = &network->identity,
                                        .run_id = network->swarm.run_id,
                                        .log = &network->log};
    struct credentials credentials;
    struct fault why = {""};
    enum rc rc;

    if (given.allow == NULL && given.deny == NULL) return;
    rc = credentials_init(&credentials, &given, uv_wall_s(), &why);
    credentials_deinit(&credentials);
    doctor_add(network->doctor, rc == RC_OK ? VERDICT_FINE : VERDICT_BROKEN, "lists",
               rc == RC_OK ? "" : "grapevine keygen makes deny lists; docs/admission.md", "%s",
               rc == RC_OK ? "can be used" : why.text);
}

static enum rc create_links(struct network *network)
{
    struct links_events events = {.context = network,
                                  .on_open = on_open,
                                  .on_message = on_message,
                                  .on_closed = on_closed,
                                  .on_dial_failed = on_dial_failed,
                                  .on_dialback = on_dialback};
    struct links_options options = {.env = network->env,
                                    .identity = &network->identity,
                                    .swarm = &network->swarm,
                                    .log = &network->log};
    struct reach_options reach = {.seed = 1};
    struct credentials_options given = {
        .certificate = options_text(network->doctor->options, "certificate"),
        .authority = options_text(network->doctor->options, "authority"),
        .identity = &network->identity,
        .run_id = network->swarm.run_id};
    struct fault why = {""};
    enum rc rc;

    memcpy(options.hello.public_key, network->identity.public_key, sizeof options.hello.public_key);
    network->env->ops->entropy(network->env, options.hello.boot.bytes, BOOT_ID_BYTES);
    network->env->ops->entropy(network->env, &reach.seed, sizeof reach.seed);
    options.hello.role = HELLO_OBSERVER;
    options.hello.listen_port = network->dialled_port;
    rc = credentials_show(&given, uv_wall_s(), &options.hello, &why);
    if (rc != RC_OK) {
        doctor_add(network->doctor, VERDICT_BROKEN, "certificate",
                   "the swarm's owner makes one with grapevine keygen --certificate", "%s",
                   why.text);
    }
    network->links = links_create(&options, &events);
    network->reach = reach_create(&reach);
    return network->links == NULL || network->reach == NULL ? RC_NOMEM : RC_OK;
}

enum rc doctor_network(struct doctor *doctor, const struct bootstrap *bootstrap, struct fault *why)
{
    struct uv_env_options options = {.way = command_way(doctor->options)};
    struct network *network = mem_alloc(sizeof *network);
    struct env_events events = {.context = network,
                                .on_accepted = env_accepted,
                                .on_connected = env_connected,
                                .on_frame = env_frame,
                                .on_drain = env_drain,
                                .on_lost = env_lost,
                                .on_wake = on_wake,
                                .on_signal = env_signal};
    enum rc rc;

    if (network == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    network->doctor = doctor;
    network->bootstrap = bootstrap;
    network->log = (struct log){LOG_ERROR, on_line, network};
    outbox_init(&network->outbox);
    rc = uv_env_create(&options, &network->env, why);
    if (rc == RC_OK) {
        network->env->ops->set_events(network->env, &events);
        load_schema(network);
        check_port(network);
        check_advertise(network);
        tell_way(network);
        rc = load_keys(network, why);
        if (rc == RC_OK) check_lists(network);
    }
    if (rc == RC_OK) {
        rc = create_links(network);
        if (rc != RC_OK) fault_set(why, rc, "out of memory");
    }
    if (rc == RC_OK) {
        dial_all(network);
        if (network->is_clock_wrong) {
            doctor_add(doctor, VERDICT_BROKEN, "monotonic clock",
                       "check the clock source of this machine", "a timer fired early");
        }
    }
    links_destroy(network->links);
    reach_destroy(network->reach);
    outbox_deinit(&network->outbox);
    if (network->env != NULL) uv_env_destroy(network->env);
    mem_wipe(&network->identity, sizeof network->identity);
    mem_wipe(&network->swarm, sizeof network->swarm);
    mem_free(network);
    return rc;
}
