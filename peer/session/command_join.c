/*
 * command_join: a peer of a swarm that is there already. It asks the peer at HOST:PORT, as an
 * observer, what the swarm trains and how, sets the flags that were not given to that, and goes on
 * as `grapevine peer --bootstrap HOST:PORT`.
 */
#include "peer/cli/command.h"

#include "base/file.h"
#include "base/mem.h"
#include "gossip/wire/address.h"
#include "peer/files/keys.h"
#include "peer/session/discover.h"
#include "peer/session/settings.h"
#include "peer/times.h"
#include "peer/watch/observer.h"

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 1024, TAKEN_BYTES = 900 };

/* The key that the peer will have, if it has one already: where only listed keys are let in, a
 * passing one is not. */
static const char *identity_of(const struct options *options, char path[PATH_BYTES])
{
    const char *given = options_text(options, "identity"), *out = options_text(options, "out");
    int length;

    if (given != NULL) return file_is_there(given) ? given : NULL;
    if (out == NULL) return NULL;
    length = snprintf(path, PATH_BYTES, "%s/identity.key", out);
    return length < PATH_BYTES && file_is_there(path) ? path : NULL;
}

/* `open_ns`: until it has let us in; 0: as long as the answer may take, which is `limit_ns`. */
static enum rc ask(const struct options *options, const char *address, uint64_t open_ns,
                   uint64_t limit_ns, struct json **status, struct fault *why)
{
    char path[PATH_BYTES], *text = NULL;
    struct swarm_secret secret = {.is_public = true};
    struct observer_options observer = {.address = address,
                                        .swarm = &secret,
                                        .identity = identity_of(options, path),
                                        .timeout_ns = limit_ns,
                                        .open_ns = open_ns,
                                        .way = command_way(options)};
    enum rc rc = keys_swarm(options_text(options, "swarm-name"), options_text(options, "swarm-key"),
                            &secret, why);

    if (observer.identity != NULL) observer.certificate = options_text(options, "certificate");
    if (rc == RC_OK) rc = observer_status(&observer, &text, why);
    mem_wipe(&secret, sizeof secret);
    if (rc == RC_OK) rc = json_parse(text, strlen(text), status, why);
    mem_free(text);
    return rc == RC_PARSE ? RC_FORMAT : rc; /* the other side's fault */
}

/* The first peer of that name that lets us in. A beacon may be an old one, of a peer that is gone,
 * or without a swarm key anybody's: who does not answer is passed over. */
static enum rc ask_heard(const struct options *options, struct discover *discover,
                         char address[ADDRESS_BYTES_MAX], struct json **status, struct fault *why)
{
    const uint64_t end_ns = uv_clock_ns() + options_ns(options, "join-timeout");
    uint64_t left_ns = end_ns - uv_clock_ns();
    struct fault last = {""};

    while (left_ns > 0 && discover_look(discover, left_ns, address)) {
        const uint64_t heard_ns = uv_clock_ns();
        enum rc rc;

        left_ns = heard_ns < end_ns ? end_ns - heard_ns : 1;
        rc = ask(options, address, left_ns < DISCOVER_OPEN_NS ? left_ns : DISCOVER_OPEN_NS, left_ns,
                 status, &last);
        if (rc == RC_OK) return RC_OK;
        if (rc == RC_CANCELLED) return fault_set(why, rc, "%s", last.text);
        log_info(discover->log, "--discover %s: nobody to join at %s (%s); looking on",
                 discover->name, address, last.text);
        left_ns = uv_clock_ns() < end_ns ? end_ns - uv_clock_ns() : 0;
    }
    if (last.text[0] != '\0') {
        return fault_set(why, RC_TIMEOUT,
                         "--discover %s: nobody who was heard on the local network lets this peer "
                         "in, the last: %.200s; give HOST:PORT",
                         discover->name, last.text);
    }
    return fault_set(why, RC_TIMEOUT,
                     "--discover %s: no peer of this name%s is heard on the local network; "
                     "start one with 'grapevine peer --discover %s', or give HOST:PORT "
                     "('grapevine doctor' says whether multicast works)",
                     discover->name, discover->is_other_told ? ", of this swarm," : "",
                     discover->name);
}

static enum rc look_for(const struct options *options, const struct log *log,
                        char address[ADDRESS_BYTES_MAX], struct json **status, struct fault *why)
{
    const char *name = options_text(options, "discover");
    struct swarm_secret secret;
    struct discover discover;
    enum rc rc;

    if (name == NULL) {
        return fault_set(why, RC_USAGE,
                         "join: HOST:PORT is missing; write 'grapevine join HOST:PORT', or "
                         "--discover NAME for a peer on the local network");
    }
    rc = keys_swarm(options_text(options, "swarm-name"), options_text(options, "swarm-key"),
                    &secret, why);
    if (rc != RC_OK) return rc;
    rc = discover_open(&discover, name, &secret, log, why);
    if (rc == RC_OK) {
        log_info(log, "looking for peers called %s on the local network", name);
        rc = ask_heard(options, &discover, address, status, why);
    }
    discover_close(&discover);
    mem_wipe(&secret, sizeof secret);
    return rc;
}

int command_join(struct options *options)
{
    size_t count;
    const char *const *words = options_arguments(options, &count);
    char found[ADDRESS_BYTES_MAX];
    const char *address = count > 0 ? words[0] : found;
    struct log log = command_log(options);
    char taken[TAKEN_BYTES];
    struct json *status = NULL;
    struct fault why = {""};
    enum rc rc = secure_start();

    if (rc != RC_OK) fault_set(&why, rc, "libsodium does not start; reinstall it");
    if (rc == RC_OK && count == 0) rc = look_for(options, &log, found, &status, &why);
    if (rc == RC_OK && !address_is_valid(address)) {
        rc = fault_set(&why, RC_USAGE, "join %.80s: not HOST:PORT; write it like 192.0.2.7:7077",
                       address);
    }
    if (rc == RC_OK && count > 0)
        rc = ask(options, address, 0, options_ns(options, "join-timeout"), &status, &why);
    if (rc == RC_OK) {
        rc = settings_take(options, address, status, taken, sizeof taken, &why);
    }
    json_destroy(status);
    if (rc == RC_OK) {
        options_become_peer(options);
        rc = options_suppose(options, "bootstrap", address, &why);
    }
    if (rc != RC_OK) return command_failed(rc, &why);
    if (!options_is_set(options, "data")) {
        fault_set(&why, RC_USAGE,
                  "join: --data is missing: what is this machine to learn from? It must be of the "
                  "swarm's shape, as in --data csv:FILE,label=COLUMN");
        return command_failed(RC_USAGE, &why);
    }
    log_info(&log, "settings of the swarm at %s: %s", address, taken);
    return command_peer(options);
}
