/*
 * delta: rounds of a group in which differences to an anchor travel that all members hold, and
 * every member gets those of all others (SparseLoCo: Sarfi et al. 2025, arXiv:2508.15706). The mean
 * of several sparse sets is not sparse, so the owner of a part passes on what it was sent, as it
 * came, and each member takes the mean by itself: equal bytes, added up in one order, give equal
 * bits.
 *
 * What a codec leaves out is not lost: it is kept, and part of what is sent in the next round
 * (error feedback: Seide et al. 2014, Interspeech; Stich, Cordonnier, Jaggi 2018,
 * arXiv:1809.07599):
 *
 *   e = decay * residual + (anchor - x);   send C(e);   residual = e - decoded C(e)
 *
 * A difference is of use only to who holds the anchor that it was taken from. So each chunk says
 * from which, by a hash, and whoever has another than most, or another momentum, gets what the
 * owner holds along with the differences, and counts from the next round on: a member that missed a
 * step, or would not take it, would otherwise be counted for the same work again and again. Where
 * nobody has an anchor yet, the models themselves travel, and their mean is the anchor.
 *
 * Bytes (averaging/WIRE.md, Differences); sizes are known before anything is decoded. Pure.
 */
#ifndef GRAPEVINE_AVERAGING_CODEC_DELTA_H
#define GRAPEVINE_AVERAGING_CODEC_DELTA_H

#include "averaging/codec/codec.h"
#include "base/blob.h"
#include "gossip/wire/limits.h"

enum { DELTA_OFFER_HEAD = 12, DELTA_MEAN_HEAD = 9, DELTA_BODY_HEAD = 4, DELTA_PLANES_MAX = 2 };

/* ---- error feedback ---- */

struct feedback {
    const struct codec *codec;
    float decay;
    uint64_t seed; /* of what chance decides in encoding */
};

/** What a member sends of [count] values: bytes: [bytes_max(count)], *bytes_count of them. `left`:
 *  [count] is what is kept of it if it counts; `residual` is not changed. scratch: [count].
 *  RC_NONFINITE. */
MUST_USE enum rc feedback_encode(const struct feedback *feedback, const float *anchor,
                                 const float *x, const float *residual, size_t count, float *left,
                                 float *scratch, uint8_t *bytes, size_t *bytes_count);
/** It did not count after all: `left` is all that was to be sent. */
MUST_USE enum rc feedback_take_back(const struct codec *codec, const uint8_t *bytes,
                                    size_t bytes_count, size_t count, float *left, float *scratch);

/* ---- what a member sends of a chunk ---- */

struct delta_offer {
    uint32_t anchor;     /* hash of what the difference is from; 0: there is none, and `body` is the
                            model's values, float32 */
    uint32_t momentum;   /* hash of what the rule keeps beside it, 0: nothing */
    uint32_t round;      /* the last in which it stepped, lowest bits of the number; 0: none */
    const uint8_t *body; /* borrowed */
    size_t body_bytes;
};

/** May `count` bytes be an offer of so many values? */
bool delta_is_offer(const struct codec *codec, size_t values, size_t count);
void delta_offer_write(const struct delta_offer *offer, uint8_t head[DELTA_OFFER_HEAD]);
/** RC_FORMAT: it is none. The body is not looked at. */
MUST_USE enum rc delta_offer_parse(const struct codec *codec, const uint8_t *bytes, size_t count,
                                   size_t values, struct delta_offer *offer);

/* ---- what the owner of a chunk returns ---- */

struct delta_mean {
    uint64_t members; /* whose differences count, a bit each by place among the members */
    bool is_whole;    /* `bodies` are values, float32: the mean of models, as none had an anchor */
    uint32_t planes;  /* what the owner's rule keeps, which comes along; 0: nothing does */
    const uint8_t *bodies; /* of `members` but the reader, by place, each behind its number of bytes
                              (u32); borrowed, as the next */
    const uint8_t *state;  /* `planes` planes, float32 */
};

/* The difference of one member. */
struct delta_body {
    const uint8_t *bytes;
    size_t count;
};

/** Of all who count, by place, with the reader's `own` in its place. Returns how many. */
uint32_t delta_bodies(const struct delta_mean *mean, uint32_t self, struct delta_body own,
                      struct delta_body bodies[GROUP_MEMBERS_MAX]);

/** May `count` bytes be what an owner returns, to anybody? */
bool delta_is_mean(const struct codec *codec, size_t values, size_t count);
/** `self`: the reader's place. RC_FORMAT. */
MUST_USE enum rc delta_mean_parse(const struct codec *codec, const uint8_t *bytes, size_t count,
                                  size_t values, uint32_t self, struct delta_mean *mean);

/* One chunk of the owner's, gathered. */
struct delta_set {
    const struct delta_offer *offers[GROUP_MEMBERS_MAX]; /* by place; NULL: none came */
    uint64_t far;     /* of these: whose difference is too long to count */
    bool is_whole;    /* nobody has an anchor: the mean of models will be it */
    uint64_t members; /* that count: they have the right anchor, and fit one record */
    uint64_t astray;  /* that have another anchor or momentum than most, or none; 0 if the owner
                         itself has */
};

/** Fills in `is_whole`, `members` and `astray`. Right is the anchor that most have, of equally many
 * that of the latest round, else the owner's; and the momentum likewise, among those. */
void delta_choose(size_t values, uint32_t self, struct delta_set *set);

/** What is kept until it is sent: `set`, with `planes` of `state` ([values] each) for who is
 *  astray. NULL: no memory. */
struct blob *delta_keep(size_t values, const struct delta_set *set, const float *const *state,
                        size_t planes);
/** The same of a mean of models. */
struct blob *delta_keep_whole(const float *mean, size_t values, uint64_t members);
/** What of it is for the member at `place`: its own is not returned to it. NULL: no memory. */
struct blob *delta_for(size_t values, struct blob *kept, uint32_t place);

/* ---- the mean ---- */

struct delta_how {
    bool by_sender; /* a value is divided by the number of those who sent one, not by all */
    bool clips;     /* who is longer than the median counts as that long */
};

/** out: [values], the mean of `count` encoded differences; scratch, senders: [values]. The same
 *  bytes in the same order give the same bits everywhere. count > 0. RC_FORMAT, RC_NONFINITE. */
MUST_USE enum rc delta_mean_of(const struct codec *codec, const struct delta_body *bodies,
                               uint32_t count, size_t values, struct delta_how how, float *out,
                               float *scratch, float *senders);

#endif
