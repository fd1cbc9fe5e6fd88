/* session: one peer as a process, from its flags to its exit code; private to command_peer.c,
 * report.c and reload.c. */
#ifndef GRAPEVINE_PEER_SESSION_SESSION_H
#define GRAPEVINE_PEER_SESSION_SESSION_H

#include "peer/cli/options.h"
#include "peer/files/address_book.h"
#include "peer/files/credentials.h"
#include "peer/files/journal.h"
#include "peer/files/keys.h"
#include "peer/files/peer_folder.h"
#include "peer/node/node.h"
#include "peer/round/audit.h"
#include "peer/session/bootstrap.h"
#include "peer/session/discover.h"
#include "peer/session/supervisor.h"
#include "peer/watch/http.h"

/* All of a running peer. */
struct session {
    const struct options *options;
    struct env *env;
    struct backend *backend;
    struct learner *learner;
    struct node *node;
    struct audit *audit;     /* NULL without --audit */
    struct tracer tracer;    /* its trace is NULL without --trace */
    struct http *http;       /* NULL without --http */
    struct journal *journal; /* NULL without --out */
    struct log terminal, log;
    struct identity identity;
    struct swarm_secret swarm;
    struct credentials credentials;
    struct strategy strategy;
    struct bootstrap bootstrap;
    bool is_bootstrap_heard;  /* by --discover, not given */
    struct discover discover; /* `name` NULL: without --discover */
    struct supervisor supervisor;
    struct json *settings; /* told to who asks */
    char classes[HELLO_SPEC_MAX], host[UV_HOST_BYTES];
    struct checkpoint checkpoint;
    bool is_resumed, is_json, has_ended;
    struct peer_folder folder;
    struct address_book book; /* as it was found; its incarnation is this start's */
    struct node_result result;
    double wall_s;
};

/* `context` is the session in all of these. */
void session_on_line(void *context, enum log_level level, const char *line);
void session_on_listening(void *context, const char *address);
void session_on_report(void *context, const struct node_report *report);
void session_on_reload(void *context);
/** Stops the env once the journal has written what it holds. */
void session_on_ended(void *context, const struct node_result *result);

/** Model, data, method and where they are kept. */
void session_say_what_runs(struct session *session);
void session_print_result(struct session *session);
/** Where the time went, if that is wanted and there was a step. */
void session_print_profile(struct session *session);

#endif
