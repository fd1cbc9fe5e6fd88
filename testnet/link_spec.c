/* link_spec: see link_spec.h. */
#include "testnet/link_spec.h"

#include "base/check.h"
#include "base/units.h"

#include <string.h>

#define LOSS_MAX 0.5

/* Which flag says what. */
struct link_text {
    const char *flag, *spec;
};

static enum rc complain(struct fault *why, const struct link_text *text, const char *at,
                        const char *what)
{
    return fault_set(why, RC_PARSE,
                     "--%s, column %zu: %s; for example rate=100mbit,delay=50ms,jitter=5ms,"
                     "loss=0.1%%",
                     text->flag, (size_t)(at - text->spec) + 1, what);
}

static enum rc parse_value(const struct link_text *text, const char *at, size_t key_length,
                           const char *value, struct sim_path *path, struct fault *why)
{
    uint64_t bits;

    if (key_length == 4 && memcmp(at, "rate", 4) == 0) {
        if (!units_parse_rate(value, &bits) || bits < 8) {
            return complain(why, text, at, "the rate is not one, such as 100mbit");
        }
        path->bytes_per_s = bits / 8;
    } else if (key_length == 5 && memcmp(at, "delay", 5) == 0) {
        if (!units_parse_duration(value, &path->latency_ns)) {
            return complain(why, text, at, "the delay is not a time, such as 50ms");
        }
    } else if (key_length == 6 && memcmp(at, "jitter", 6) == 0) {
        if (!units_parse_duration(value, &path->jitter_ns)) {
            return complain(why, text, at, "the jitter is not a time, such as 5ms");
        }
    } else if (key_length == 4 && memcmp(at, "loss", 4) == 0) {
        if (!units_parse_share(value, &path->loss) || path->loss < 0 || path->loss > LOSS_MAX) {
            return complain(why, text, at, "the loss is not a share up to 50%, such as 0.1%");
        }
    } else {
        return complain(why, text, at, "unknown key; known are rate, delay, jitter, loss");
    }
    return RC_OK;
}

enum rc link_spec_parse(const char *flag, const char *spec, struct sim_path *path,
                        struct fault *why)
{
    const struct link_text text = {flag, spec};
    static const char keys[] = "rdjl"; /* no two begin alike */
    struct sim_path parsed = {0};
    bool given[sizeof keys] = {false};
    char value[32];

    for (const char *at = spec; at != NULL && spec[0] != '\0';) {
        size_t length = strcspn(at, ","), key_length = strcspn(at, "=,");
        size_t value_length = length - key_length - 1;
        const char *key;
        enum rc rc;

        if (key_length == length) return complain(why, &text, at, "KEY=VALUE expected");
        if (value_length >= sizeof value) return complain(why, &text, at, "the value is too long");
        memcpy(value, at + key_length + 1, value_length);
        value[value_length] = '\0';
        rc = parse_value(&text, at, key_length, value, &parsed, why);
        if (rc != RC_OK) return rc;
        key = memchr(keys, at[0], sizeof keys - 1);
        CHECK(key != NULL);
        if (given[key - keys]) return complain(why, &text, at, "this key is given twice");
        given[key - keys] = true;
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    *path = parsed;
    return RC_OK;
}
