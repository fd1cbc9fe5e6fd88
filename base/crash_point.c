/*
 * crash_point: see crash_point.h. What is armed is the process's, as is the SIGKILL: handing it
 * through every layer, down to the writing of files, would cost more than it says.
 */
#include "base/crash_point.h"

#include "base/check.h"

#include <ctype.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CRASH_POINT_NAME(id, name) [CRASH_##id] = name,
static const char *const names[CRASH_COUNT] = {CRASH_POINTS(CRASH_POINT_NAME)};
#undef CRASH_POINT_NAME

static _Atomic int armed = CRASH_NONE;
static _Atomic uint64_t passes_left;
static _Atomic int deadly = SIGKILL;

void crash_point(enum crash_point point)
{
    if (point == CRASH_NONE || atomic_load_explicit(&armed, memory_order_relaxed) != (int)point) {
        return;
    }
    if (atomic_fetch_sub_explicit(&passes_left, 1, memory_order_relaxed) == 1) {
        (void)kill(getpid(), atomic_load_explicit(&deadly, memory_order_relaxed));
    }
}

const char *crash_point_name(enum crash_point point)
{
    CHECK(point > CRASH_NONE && point < CRASH_COUNT);
    return names[point];
}

/* "pair:ready-sent:3": a last part of digits alone is the count. False: it is none. */
static bool split(const char *spec, size_t *length, uint64_t *count)
{
    const char *colon = strrchr(spec, ':');
    uint64_t value = 0;

    *length = strlen(spec);
    *count = 1;
    if (colon == NULL || !isdigit((unsigned char)colon[1])) return true;
    for (const char *at = colon + 1; *at != '\0'; at++) {
        if (!isdigit((unsigned char)*at) || value > UINT32_MAX) return false;
        value = value * 10 + (uint64_t)(*at - '0');
    }
    *length = (size_t)(colon - spec);
    *count = value;
    return value > 0;
}

/* Without a last ":stop". True: there was one. */
static bool take_stop(const char *spec, char *rest, size_t cap)
{
    static const char stop[] = ":stop";
    size_t length = strlen(spec), of_stop = sizeof stop - 1;
    bool is_stop = length >= of_stop && strcmp(spec + length - of_stop, stop) == 0;

    snprintf(rest, cap, "%.*s", (int)(is_stop ? length - of_stop : length), spec);
    return is_stop;
}

enum rc crash_point_arm(const char *text, struct fault *why)
{
    char spec[80];
    size_t length;
    uint64_t count;

    atomic_store(&armed, CRASH_NONE);
    if (text == NULL) return RC_OK;
    atomic_store(&deadly, take_stop(text, spec, sizeof spec) ? SIGSTOP : SIGKILL);
    if (!split(spec, &length, &count)) {
        return fault_set(why, RC_PARSE, "GRAPEVINE_CRASH_POINT: NAME:COUNT expected, not '%.80s'",
                         spec);
    }
    for (int point = CRASH_NONE + 1; point < CRASH_COUNT; point++) {
        if (strlen(names[point]) != length || strncmp(names[point], spec, length) != 0) continue;
        atomic_store(&passes_left, count);
        atomic_store(&armed, point);
        return RC_OK;
    }
    return fault_set(
        why, RC_PARSE,
        "GRAPEVINE_CRASH_POINT: no point '%.80s'; GRAPEVINE_CRASH_POINT=list prints all", spec);
}
