/*
 * Where the rule allows it, what comes in is made a difference to the model as soon as it is there:
 * the values are in the cache then, and neither they nor what we told the others are read again. So
 * it is in rounds of pairs, and with the means of groups. While the round runs the differences lie
 * where they are applied from, and nobody reads them: whether they ever count, and how much, is
 * settled as before, after every check. A pair knows the scale beforehand, unless distances decide
 * (--robust clip), so that settling them is nothing at all.
 *
 * A pair needs what it told the others nowhere else, so with a codec that loses something no plane
 * of it is kept; it is decoded from what was sent. Jobs of the exchange lane.
 */
#include "peer/round/internal.h"
#include "base/norm.h"

#include "base/check.h"
#include "base/stream.h"

#include <math.h>
#include <stdalign.h>

static bool may_meet(const struct round *round)
{
    return round->options.strategy->rule->meet != NULL &&
           (round->ops->has_mean || round->ops->is_of_two);
}

bool round_keeps_own(const struct round *round)
{
    if (round->ops->has_mirrors) return true;
    return !(may_meet(round) && round->ops->is_of_two) || round->codec->traits.is_lossless ||
           round->options.audit != NULL;
}

bool round_meets(const struct round *round, enum data_kind kind)
{
    if (!may_meet(round)) return false;
    return round->ops->is_of_two ? kind == DATA_OFFER : kind == DATA_MEAN && !round->copies_agreed;
}

enum rc round_own(struct round *round, uint32_t chunk, const struct blob *told, const float **own)
{
    struct range range = round_chunk_range(round, chunk);

    *own = round->own != NULL ? round->own + range.first : round->told;
    if (round->own != NULL) return RC_OK;
    CHECK(told != NULL);
    if (round->codec->ops->decode(round->codec, told->bytes, told->count, round->told,
                                  range.count) == RC_OK) {
        return RC_OK;
    }
    return RC_DEVICE; /* encoded there, and not as here: not what the partner sent */
}

/* What is kept of the offer may be given up while the job is under way. */
void round_meet_prepare(struct round *round, struct round_job *job)
{
    round->likely_scale = job->scale;
    if (round->own == NULL || round->feedback != NULL)
        job->told = blob_ref(round->offer[job->chunk.chunk]);
}

static bool is_plain(const struct round *round)
{
    return round->codec->ops->format == CODEC_F32 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
}

bool round_sums_are_sent(const struct round *round)
{
    return is_plain(round);
}

enum rc round_values_of(struct round *round, struct round_job *job, struct range range,
                        float **values)
{
    uint8_t *body = job->blob->bytes + (job->body - job->blob->bytes);

    if (is_plain(round) && job->body_count == range.count * sizeof(float) &&
        (uintptr_t)body % alignof(float) == 0) {
        *values = (float *)(void *)body;
        return RC_OK;
    }
    *values = round->scratch;
    return round->codec->ops->decode(round->codec, job->body, job->body_count, round->scratch,
                                     range.count);
}

static double squared_of_parameters(const struct round *round, struct range range, double squared)
{
    size_t parameters = round->layout.parameters;

    if (range.first + range.count <= parameters) return squared;
    if (range.first >= parameters) return 0;
    return norm_squared(round->difference + range.first, parameters - range.first);
}

double round_apart(struct round *round, struct range range, float scale, const float *in,
                   const float *own)
{
    return robust_apart(in, own, range.count, scale, round->difference + range.first,
                        stream_is_worth_it(round->layout.values));
}

enum rc round_meet(struct round *round, uint32_t chunk, float scale, double apart)
{
    struct range range = round_chunk_range(round, chunk);
    double squared = (double)scale * (double)scale * apart;
    enum rc rc = round->options.strategy->rule->meet(round->rule, range, scale, round->difference);

    if (rc == RC_OK) round->squares[chunk] = squared_of_parameters(round, range, squared);
    return rc;
}

enum rc round_meet_agreed(struct round *round, uint32_t chunk, const float *mean)
{
    struct range range = round_chunk_range(round, chunk);
    const float *own;
    enum rc rc = round_own(round, chunk, NULL, &own);

    if (rc != RC_OK) return rc;
    return round_meet(round, chunk, 1, round_apart(round, range, 1, mean, own));
}

void round_meet_begin(struct round *round)
{
    for (uint32_t chunk = 0; chunk < round->chunks; chunk++) {
        round->squares[chunk] = -1;
    }
}

double round_meet_squared(const struct round *round, const uint8_t *bitmap, float scale,
                          const float *difference)
{
    double factor = (double)(scale / round->likely_scale), squared = 0;

    /* Where nothing meets rules may move chunks that nothing came for: what a codec had lost. */
    if (!may_meet(round)) return norm_squared(difference, round->layout.parameters);
    for (uint32_t chunk = 0; chunk < round->chunks; chunk++) {
        if ((bitmap[chunk / 8] >> chunk % 8 & 1) == 0) continue;
        if (round->squares[chunk] < 0) {
            return norm_squared(difference, round->layout.parameters);
        }
        squared += round->squares[chunk];
    }
    return factor * factor * squared;
}
