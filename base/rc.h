/* Return codes: how every call that can fail says so. One list for the whole project. */
#ifndef GRAPEVINE_BASE_RC_H
#define GRAPEVINE_BASE_RC_H

#define MUST_USE __attribute__((warn_unused_result))

enum rc {
    RC_OK = 0,
    RC_NOMEM,       /* out of memory */
    RC_USAGE,       /* the command line or the configuration is wrong */
    RC_PARSE,       /* a spec or text could not be parsed */
    RC_FORMAT,      /* bytes from a file or a peer do not have the promised form */
    RC_IO,          /* the operating system refused: read, write, open, ... */
    RC_DISK_FULL,   /* no space left on the device */
    RC_NOT_FOUND,   /* no such file, peer, tensor, ... */
    RC_BUSY,        /* not now: in use; try later */
    RC_LIMIT,       /* a named limit is reached */
    RC_AUTH,        /* a tag, signature or key is wrong */
    RC_CLOSED,      /* the other side closed, or we did */
    RC_REFUSED,     /* the other side said no */
    RC_TIMEOUT,     /* a deadline passed */
    RC_SHAPE,       /* sizes do not fit together */
    RC_NONFINITE,   /* a NaN or an infinity where none may be */
    RC_MISMATCH,    /* well formed, but of another model, swarm, version or round */
    RC_STALE,       /* from a round that is over, or too old */
    RC_REPLAY,      /* seen before */
    RC_DEVICE,      /* the compute device failed */
    RC_UNSUPPORTED, /* not built in, or not on this machine */
    RC_CANCELLED,   /* given up on request */
    RC_COUNT
};

/** A short lower-case phrase for `rc`, never NULL. */
const char *rc_text(enum rc rc);

#endif
