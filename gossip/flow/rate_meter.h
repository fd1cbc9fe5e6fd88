/*
 * rate_meter: what a line carries, seen by whoever receives: bytes of large frames, by the time in
 * which any of them was coming in, from its first bytes to its last. What the sender did before and
 * between does not count. Pure.
 *
 * A sample needs METER_BUSY_NS of that time, however many frames it takes: less says more of the
 * receiver's machine than of the line. A line that never took so long is known to be quick, and not
 * how quick. The best of the last METER_SAMPLES counts, as whatever else is slow only ever makes a
 * line look worse; what is older than METER_AGE_NS says nothing.
 */
#ifndef GRAPEVINE_GOSSIP_FLOW_RATE_METER_H
#define GRAPEVINE_GOSSIP_FLOW_RATE_METER_H

#include "base/bytes.h"
#include "gossip/times.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { METER_SAMPLES = 4 };
#define METER_RATE_MAX UINT64_C(1000000000000) /* bytes a second; beyond, all are the same */

/* Zeroed is empty. */
struct rate_meter {
    uint64_t bytes, busy_ns; /* of the sample that is being taken */
    uint64_t covered_ns;     /* until then time was counted: frames may come beside each other */
    struct {
        uint64_t rate, at_ns;
    } samples[METER_SAMPLES]; /* the oldest is overwritten; at 0: none */
    uint32_t next;
};

/** A frame of `bytes` is there as of `now_ns`, after `spent_ns`. */
void rate_meter_note(struct rate_meter *meter, size_t bytes, uint64_t spent_ns, uint64_t now_ns);
/** Bytes a second; `is_least`: at least so many. False: nothing was seen. */
bool rate_meter_read(const struct rate_meter *meter, uint64_t now_ns, uint64_t *rate,
                     bool *is_least);

#endif
