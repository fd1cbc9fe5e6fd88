/*
 * session: one peer as a process, from its flags to its end. Whoever trains in it is its trainer:
 * `grapevine peer` with a replica of its own (command_peer.c), or the program that uses
 * libgrapevine (library/member.c).
 */
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

struct session;

/* What is the trainer's to say. Called by session_open(), in this order, on one thread. */
struct session_trainer {
    /** Do the flags make sense to it? It may set some that were not given. */
    MUST_USE enum rc (*check)(struct session *session, struct options *options, struct fault *why);
    /** session->learner; also session->backend, where it computes on one. */
    MUST_USE enum rc (*create)(struct session *session, struct fault *why);
    /** There is no checkpoint: the values that training begins with. */
    MUST_USE enum rc (*begin)(struct session *session, struct fault *why);
    /** What is told to who asks; NULL: nothing. json_destroy(). */
    struct json *(*settings)(const struct session *session);
    /** Goal, batch, evaluations, data and spec of the model. */
    void (*describe)(struct session *session, struct node_options *node);
    /** What is in force and was said by no flag, as lines of comment. */
    void (*tell_chosen)(const struct session *session, char *text, size_t cap);
    struct node_events events; /* on the loop; their context is the session */
};

/* All of a running peer. */
struct session {
    const struct options *options;
    const struct session_trainer *trainer;
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
    struct tensor_file *given; /* to go on from, not from the folder's checkpoint; NULL: none */
    struct checkpoint checkpoint;
    bool is_within; /* see struct uv_env_options */
    bool is_resumed, is_json, has_ended;
    struct peer_folder folder;
    struct address_book book; /* as it was found; its incarnation is this start's */
    struct node_result result;
    double wall_s;
};

/** Open all of it, in a session that is zero but for `options`, `trainer`, `terminal`, `log`,
 *  `is_json` and folder.lock.fd = -1. RC_USAGE and others say why; close it in any case. */
MUST_USE enum rc session_open(struct session *session, struct options *options, struct fault *why);
/** Of the folder it keeps the lock, see peer_folder_close(). Once the loop does not run. */
void session_close(struct session *session);

/* report.c. `context` is the session in all of these. */
void session_on_line(void *context, enum log_level level, const char *line);
void session_on_listening(void *context, const char *address);
/** The same, but for what a command prints. */
void session_listens(struct session *session, const char *address);
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
