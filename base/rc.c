/* Texts of the return codes. */
#include "base/rc.h"

static const char *const texts[RC_COUNT] = {
    [RC_OK] = "ok",
    [RC_NOMEM] = "out of memory",
    [RC_USAGE] = "wrong usage",
    [RC_PARSE] = "cannot be parsed",
    [RC_FORMAT] = "malformed",
    [RC_IO] = "input/output error",
    [RC_DISK_FULL] = "no space left on device",
    [RC_NOT_FOUND] = "not found",
    [RC_BUSY] = "busy",
    [RC_LIMIT] = "limit reached",
    [RC_AUTH] = "not authentic",
    [RC_CLOSED] = "closed",
    [RC_REFUSED] = "refused",
    [RC_TIMEOUT] = "timed out",
    [RC_SHAPE] = "shapes do not fit",
    [RC_NONFINITE] = "not finite",
    [RC_MISMATCH] = "does not match",
    [RC_STALE] = "stale",
    [RC_REPLAY] = "seen before",
    [RC_DEVICE] = "device failed",
    [RC_UNSUPPORTED] = "not supported",
    [RC_CANCELLED] = "cancelled",
};

const char *rc_text(enum rc rc)
{
    if ((unsigned)rc >= RC_COUNT) return "unknown error";
    return texts[rc];
}
