/*
 * SIGHUP: what the peer was given as files and may change while it runs is read again. It never
 * ends a peer, so that a service manager may always send it; a terminal that is closed sends it,
 * too. What cannot be used is said, and what was in force stays. Loop thread; blocking.
 */
#include "peer/session/session.h"

/* For a peer that has lost all others: where they are now. */
static void read_bootstrap(struct session *session)
{
    const char *spec = options_text(session->options, "bootstrap");
    struct bootstrap again;
    struct fault why = {""};

    if (spec == NULL || spec[0] != '@') return;
    if (bootstrap_parse(spec, &again, &why) != RC_OK) {
        log_error(&session->log, "%s; those given before stay in force", why.text);
        return;
    }
    log_info(&session->log, "read again: %zu addresses in --bootstrap", again.count);
    for (size_t i = 0; i < again.count; i++)
        node_meet(session->node, again.addresses[i]);
}

void session_on_reload(void *context)
{
    struct session *session = context;

    supervisor_reloading(&session->supervisor);
    credentials_reload(&session->credentials);
    read_bootstrap(session);
    supervisor_reloaded(&session->supervisor);
}
