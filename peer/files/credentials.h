/*
 * credentials: the files behind --allow, --authority, --certificate and --deny: read at the start,
 * and again on SIGHUP. A file that cannot be used is an error at the start; later the list in force
 * stays, and that is said. The highest deny list seen is kept in the peer's folder, so that a
 * restart with an older file does not let anybody back in. Loop thread; blocking.
 */
#ifndef GRAPEVINE_PEER_FILES_CREDENTIALS_H
#define GRAPEVINE_PEER_FILES_CREDENTIALS_H

#include "base/log.h"
#include "gossip/door/admission.h"
#include "gossip/signed/hello.h"
#include "peer/env/env.h"

struct credentials_options {
    struct env *env;   /* its store keeps the deny list; one without a folder is fine */
    const char *allow; /* paths; NULL: not given */
    const char *deny;
    const char *certificate;
    const char *authority; /* a public key in hexadecimal; NULL: not given */
    const struct identity *identity;
    struct digest run_id;
    const struct log *log;
};

struct credentials {
    struct credentials_options options; /* borrows what it points to */
    struct admission admission;
    uint8_t certificate[CERTIFICATE_WIRE_BYTES];
    size_t certificate_bytes; /* 0: none */
};

/** RC_USAGE, RC_PARSE, RC_IO...: one line that names flag, file and what is wrong. `wall_s`: time
 * of day. Release with credentials_deinit(), also after an error. */
MUST_USE enum rc credentials_init(struct credentials *credentials,
                                  const struct credentials_options *options, uint64_t wall_s,
                                  struct fault *why);
/** For a visitor, which judges nobody: the certificate, if one is given, is checked as above and
 * put into what is shown. The lists, the env and the log are not used. */
MUST_USE enum rc credentials_show(const struct credentials_options *options, uint64_t wall_s,
                                  struct hello *hello, struct fault *why);
void credentials_deinit(struct credentials *credentials);
/** SIGHUP: each list anew; logs what became of it. */
void credentials_reload(struct credentials *credentials);

#endif
