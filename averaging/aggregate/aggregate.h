/*
 * aggregate: rules that make one value of what several members say and hold while some of them lie
 * (--robust trim:K, median, krum, multi-krum, centered-clip, rfa). A mean has no such bound: one
 * value moves it as far as it likes. Arithmetic only; gather.h keeps what is to be aggregated.
 *
 * In rounds of a group the owner of a part applies one, chunk by chunk, in place of the mean, and
 * all take over what it got, so all hold the same bits whoever aggregates. Distances and norms are
 * of the chunk (32,768 values), as those of the gate are. In rounds of neighbours each peer applies
 * one to the planes that came and its own, as a whole: the mean over all peers is then not kept.
 *
 * What a weight (samples since the last round) means there. A rank, a vote and a distance are of
 * one member, whatever it says of itself: trim, median and krum count all alike. multi-krum,
 * centered-clip and rfa weigh those that remain by their samples, as the mean does.
 *
 * The result does not depend on who came first: rows stand in the order of their members' ids. Runs
 * in jobs of the exchange lane.
 */
#ifndef GRAPEVINE_AVERAGING_AGGREGATE_AGGREGATE_H
#define GRAPEVINE_AVERAGING_AGGREGATE_AGGREGATE_H

#include "base/fault.h"
#include "base/rc.h"
#include "gossip/wire/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    AGGREGATE_ROWS_MAX = GROUP_MEMBERS_MAX + 1, /* all neighbours, and the own one */
    AGGREGATE_ROWS_LEAST = 3                    /* of two nobody can say which one lies */
};

struct aggregate_rows {
    const float *values[AGGREGATE_ROWS_MAX]; /* [count] each, finite; by rising id of the member */
    float weights[AGGREGATE_ROWS_MAX];       /* > 0 */
    uint32_t members; /* at least AGGREGATE_ROWS_LEAST, but for what is_defenceless */
    size_t count;
    const float *centre; /* [count] what all held before, or a peer's own values; NULL: not known */
    float radius;        /* how far around it a member may be to count whole; 0: none may */
};

struct aggregate_ops {
    const char *name;
    bool takes_faults;   /* ":K" may follow the name */
    bool needs_faults;   /* and must */
    bool wants_usual;    /* it goes by a centre, and how far around it is usual */
    bool is_defenceless; /* it is how a method merges: the centre is what the round's rule steps
                            from, members count by what clip leaves of them, and one is enough */
    bool is_by_value;    /* each value by itself: what members say is not mixed as a whole */
    /** Of `rows` into `out` [count], none of the rows. `faults`: as many members may lie; where it
     *  is more than so many members allow, or UINT32_MAX, the most that they do. Returns how many
     *  members were left out, or counted for less. */
    uint32_t (*combine)(const struct aggregate_rows *rows, uint32_t faults, float *out);
};

/* A rule and how many may lie. `ops` NULL: the mean. */
struct aggregate {
    const struct aggregate_ops *ops;
    uint32_t faults; /* UINT32_MAX: the most that can be */
};

extern const struct aggregate_ops aggregate_trim, aggregate_median, aggregate_krum;
/* How a method merges, and no defence: it has no name in --robust. */
extern const struct aggregate_ops aggregate_radial;
extern const struct aggregate_ops aggregate_multi_krum, aggregate_centered_clip, aggregate_rfa;

/** NULL past the end. */
const struct aggregate_ops *aggregate_at(size_t index);
/** "NAME" or "NAME:K" of --robust. False: no aggregate has this name. Else RC_OK or RC_PARSE is in
 *  *rc, with `why`. */
bool aggregate_parse(const char *spec, struct aggregate *aggregate, enum rc *rc, struct fault *why);
/** As it is given. `cap`: 32 is enough. */
void aggregate_format(const struct aggregate *aggregate, char *text, size_t cap);

/** Of all rows the mean by weight: what is left of every rule where too few are there. */
void aggregate_mean(const struct aggregate_rows *rows, float *out);

#endif
