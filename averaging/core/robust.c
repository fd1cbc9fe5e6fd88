/* Gates and clipping; see robust.h. */
#include "averaging/core/robust.h"

#include "averaging/core/deadline.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/norm.h"
#include "base/stream.h"
#include "gossip/wire/limits.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { FEW_PEERS = 3, FEW_TIMES = 8, SILENT_TIMES = 4 };
enum { SUMS = 16, BLOCK_VALUES = 1024 };
_Static_assert((int)BLOCK_VALUES % (int)SUMS == 0, "as if there were no blocks");

/* Factors are of what is usual, _least and _most are shares of a norm. What they are for is in
 * robust.h: `own` where it is judged around our own values, by planes and in pushes. */
static const float gate_factor = 10.0f, gate_least = 1.5f, gate_most = 1.9f, plane_factor = 1.5f,
                   share_factor = 1.25f, own_least = 1.0f / 8, centred_factor = 2.0f,
                   centred_factor_mean = 4.0f, member_least = 1.0f / 256, mean_least = 1.0f / 32,
                   mean_least_at_goal = 1.0f / 64, member_most = 1.0f / 3, own_most = 0.4f,
                   tracker_factor = 10.0f, gradient_kept = 1 - 1.0f / 1024, rounds_most = 8,
                   radii_at_goal = 4, radii_at_once = 2;

/* ---- what is usual ---- */

static uint32_t tag_of(struct peer_id peer)
{
    return load_le32(peer.bytes);
}

/* The last entry takes the place of one that is left out. For means alone, which each owner returns
 * in its turn: elsewhere a liar that speaks often would be the only one that is heard. */
static void forget_silent(struct robust_history *history)
{
    for (uint8_t i = 0; i < history->count; i++) {
        const uint8_t last = (uint8_t)(history->count - 1);

        if (history->ages[i] < SILENT_TIMES * history->count) continue;
        history->tags[i] = history->tags[last];
        history->distances[i] = history->distances[last];
        history->ages[i--] = history->ages[last];
        history->next = history->count = last;
    }
}

void robust_note(struct robust_history *history, struct peer_id peer, float distance)
{
    uint32_t tag = tag_of(peer);
    uint8_t at = history->next;

    if (!(distance >= 0) || !isfinite(distance)) return;
    for (uint8_t i = 0; i < history->count; i++) {
        if (history->tags[i] == tag) at = i;
        if (history->ages[i] < UINT8_MAX) history->ages[i]++;
    }
    if (at == history->next) {
        history->next = (uint8_t)((history->next + 1) % ROBUST_PEERS);
        if (history->count < ROBUST_PEERS) history->count++;
    }
    history->tags[at] = tag;
    history->distances[at] = distance;
    history->ages[at] = 0;
    if (history->seen < UINT8_MAX) history->seen++;
}

bool robust_is_learned(const struct robust_history *history)
{
    return history->count >= FEW_PEERS || history->seen >= FEW_TIMES;
}

float robust_median(const struct robust_history *history)
{
    float sorted[ROBUST_PEERS];

    if (history->count == 0) return 0;
    for (uint8_t i = 0; i < history->count; i++) {
        uint8_t at = i;

        for (; at > 0 && sorted[at - 1] > history->distances[i]; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = history->distances[i];
    }
    return sorted[(history->count - 1) / 2];
}

float robust_radius(const struct robust_history *history, const struct robust_bounds *bounds)
{
    float usual = robust_is_learned(history) ? plane_factor * robust_median(history) : 0;

    return bounds == NULL ? usual : fminf(fmaxf(usual, bounds->least), bounds->most);
}

/* ---- what it makes of a distance ---- */

float robust_weight(float distance, float radius)
{
    float share = radius / distance;

    return distance <= radius ? 1 : share * share * share;
}

/* ---- a chunk ---- */

FOR_EACH_CPU(static, void, apart,
             (const float *restrict in, const float *restrict own, size_t count, float weight,
              float *restrict out, double sums[restrict SUMS]),
             (in, own, count, weight, out, sums))
{
    size_t whole = count - count % SUMS;

    for (size_t i = 0; i < whole; i += SUMS) {
        for (size_t j = 0; j < SUMS; j++) {
            double apart = (double)in[i + j] - (double)own[i + j];

            sums[j] += apart * apart;
            out[i + j] = weight * (in[i + j] - own[i + j]);
        }
    }
    for (size_t j = 0; whole + j < count; j++) {
        double apart = (double)in[whole + j] - (double)own[whole + j];

        sums[j] += apart * apart;
        out[whole + j] = weight * (in[whole + j] - own[whole + j]);
    }
}

/* A square in float64 of a difference of two float32 is finite if both are. */
double robust_apart(const float *in, const float *own, size_t count, float weight, float *out,
                    bool streams)
{
    double sums[SUMS] = {0.0}, total = 0.0;
    float block[BLOCK_VALUES];

    for (size_t first = 0; first < count; first += BLOCK_VALUES) {
        size_t n = count - first < BLOCK_VALUES ? count - first : BLOCK_VALUES;

        apart(in + first, own + first, n, weight, streams ? block : out + first, sums);
        if (streams) stream_copy(out + first, block, n);
    }
    for (size_t j = 0; j < SUMS; j++) {
        total += sums[j];
    }
    return total;
}

float robust_distance(const float *a, const float *b, size_t count)
{
    return (float)sqrt(b == NULL ? norm_squared(a, count) : norm_squared_apart(a, b, count));
}

FOR_EACH_CPU(extern, void, robust_draw_near,
             (const float *own, const float *in, size_t count, float weight, float *to),
             (own, in, count, weight, to))
{
    for (size_t i = 0; i < count; i++) {
        to[i] = own[i] + weight * (in[i] - own[i]);
    }
}

/* A mean is nearer to us than the members it is of, so means have a history of their own. */
struct robust_seen {
    struct robust_history history, of_means;
    float norm;       /* the largest of our own, or of centres */
    float grown;      /* the same, with our own beside centres */
    uint64_t normed;  /* the round whose centre it was measured of last */
    uint32_t refused; /* means of it, one after the other, since one was taken over */
    float left;       /* at the goal: radii that means may move us by */
};

struct robust {
    bool clips;
    uint32_t chunks;
    float outputs;            /* of each distribution; 0: the plane is a model's */
    uint32_t trackers;        /* the chunk in which they begin */
    size_t model_tail;        /* values of the model in it */
    float gradient;           /* the largest norm of a chunk of our own lately */
    struct deadline periods;  /* steps from round to round */
    float rounds;             /* that could have been since the last one: 1 to rounds_most */
    bool is_last;             /* we are at our goal */
    uint64_t round;           /* how many have begun */
    struct robust_seen *seen; /* [chunks + 1]: the last is of what is behind the model's tail */
};

struct robust *robust_create(uint32_t chunks, bool clips)
{
    struct robust *robust = mem_alloc(sizeof *robust);

    if (robust == NULL) return NULL;
    robust->clips = clips;
    robust->chunks = robust->trackers = chunks;
    robust->seen = mem_array((size_t)chunks + 1, sizeof *robust->seen);
    if (robust->seen == NULL) {
        robust_destroy(robust);
        return NULL;
    }
    robust_begin(robust, 0, false);
    return robust;
}

void robust_destroy(struct robust *robust)
{
    if (robust == NULL) return;
    mem_free(robust->seen);
    mem_free(robust);
}

void robust_begin(struct robust *robust, uint64_t steps, bool is_last)
{
    uint64_t usual = deadline_median(&robust->periods, steps);
    float since = usual == 0 ? 1 : floorf((float)steps / (float)usual + 0.5f);

    robust->round++;
    robust->is_last = is_last;
    robust->rounds = fminf(fmaxf(since, 1), rounds_most);
    for (uint32_t i = 0; i <= robust->chunks; i++) {
        struct robust_seen *seen = &robust->seen[i];

        if (!is_last) seen->left = radii_at_goal;
    }
    if (!is_last && steps > 0) deadline_add(&robust->periods, steps);
}

void robust_set_trackers(struct robust *robust, size_t model)
{
    robust->trackers = (uint32_t)(model / CHUNK_VALUES);
    robust->model_tail = model % CHUNK_VALUES;
}

void robust_set_distributions(struct robust *robust, size_t outputs)
{
    robust->outputs = (float)outputs;
}

float robust_largest_chunk(const float *values, size_t first, size_t count)
{
    float largest = 0;

    for (size_t at = 0; at < count;) {
        size_t n = CHUNK_VALUES - (first + at) % CHUNK_VALUES;
        float norm;

        if (n > count - at) n = count - at;
        norm = robust_distance(values + at, NULL, n);
        if (norm > largest) largest = norm;
        at += n;
    }
    return largest;
}

void robust_note_gradient(struct robust *robust, float largest)
{
    robust->gradient *= gradient_kept;
    if (isfinite(largest) && largest > robust->gradient) robust->gradient = largest;
}

/* The norm of what a chunk is judged around, now or earlier, if that was larger: a model may shrink
 * while it learns, and who missed that is no attacker. Zeros, which nobody has moved yet, say
 * nothing. A centre is the same for all that comes in a round. `grown`: our own counts, too. */
static float norm_of(const struct robust *robust, struct robust_seen *seen,
                     const struct robust_chunk *chunk, bool grown)
{
    if (robust->outputs > 0) return sqrtf((float)chunk->count / robust->outputs);
    if (!chunk->is_centred || seen->normed != robust->round) {
        seen->norm = fmaxf(seen->norm, robust_distance(chunk->own, NULL, chunk->count));
        seen->grown = fmaxf(seen->grown, seen->norm);
        if (chunk->ours != NULL) {
            seen->grown = fmaxf(seen->grown, robust_distance(chunk->ours, NULL, chunk->count));
        }
    }
    if (chunk->is_centred) seen->normed = robust->round;
    return grown ? seen->grown : seen->norm;
}

/* How many norms away an unrelated chunk of our size may be. With n values the square of its
 * distance, 2 + (their squared norm - ours) - 2 cos, has a deviation of sqrt(8 / n): cosines of
 * unrelated directions deviate by 1 / sqrt(n), and the two squared norms by sqrt(2 / n) each. So
 * the distance deviates by 1 / sqrt(n), and three of that are let pass; not turned signs. */
static float gate_norms(size_t count)
{
    float norms = (float)(M_SQRT2 + 3 / sqrt((double)count));

    if (norms < gate_least) return gate_least;
    return norms < gate_most ? norms : gate_most;
}

/* A tracker is a mixture of gradients like ours, whatever mixing has made of our own: that one
 * holds what was let pass before, and so would let pass more each time. Nor is a usual distance
 * asked: who sends a little more each round would be what is usual. Without a gradient there is
 * nothing to go by: then zeros alone pass. */
static bool is_absurd_tracker(const struct robust *robust, const struct robust_chunk *chunk)
{
    float norm = robust_distance(chunk->in, NULL, chunk->count);

    return !(norm <= tracker_factor * robust->gradient);
}

/* The norm is looked at only where the usual distances do not settle it. */
static bool is_absurd(const struct robust *robust, struct robust_seen *seen,
                      const struct robust_history *history, const struct robust_chunk *chunk,
                      float distance)
{
    bool is_learned = robust_is_learned(history);
    float usual = robust_median(history), limit;

    if (is_learned && distance <= gate_factor * usual) return false;
    limit = norm_of(robust, seen, chunk, true) *
            (is_learned || robust->clips ? gate_norms(chunk->count) : gate_factor * gate_least);
    if (limit == 0 && (!is_learned || usual == 0)) return false;
    return !(distance <= limit);
}

static struct robust_history *history_of(struct robust_seen *seen, const struct robust_chunk *chunk)
{
    return chunk->is_mean ? &seen->of_means : &seen->history;
}

static float radius_by(const struct robust_history *history, float factor, float norm, float least)
{
    if (!robust_is_learned(history)) return member_most * norm;
    return fmaxf(factor * robust_median(history), least * norm);
}

/* What is usual is no measure where it is as large as the model: who is kept from learning takes
 * long steps, so a liar that has grown usual makes room for the next one. Zeros measure nothing. */
static float at_most(float radius, float share, float norm)
{
    return norm == 0 ? radius : fminf(radius, share * norm);
}

/* 0: all is let in. At the goal some come with their last steps and most with none, so a mean may
 * be as far as a member. */
static float radius_of(const struct robust *robust, struct robust_seen *seen,
                       const struct robust_chunk *chunk)
{
    float norm = norm_of(robust, seen, chunk, !robust_is_learned(history_of(seen, chunk)));
    float of_members, of_means;

    if (!chunk->is_centred) {
        return at_most(radius_by(&seen->history, share_factor, norm, own_least), own_most, norm);
    }
    if (!chunk->is_mean) {
        of_members = robust->rounds * radius_by(&seen->history, centred_factor, norm, member_least);
        /* At the goal what is usual grows no more. */
        return robust->is_last ? of_members : at_most(of_members, member_most, norm);
    }
    const float refused = robust->is_last ? 0 : (float)seen->refused;
    const float rounds = fminf(fmaxf(robust->rounds, 1 + refused), rounds_most);

    of_means = rounds * radius_by(&seen->of_means, centred_factor_mean, norm,
                                  robust->is_last ? mean_least_at_goal : mean_least);
    if (!robust->is_last || seen->history.count < 2) return of_means;
    return fmaxf(of_means, centred_factor * robust_median(&seen->history));
}

/* At the goal what it moves us by is taken from what is left. */
static bool takes_mean(const struct robust *robust, struct robust_seen *seen, float distance,
                       float radius)
{
    if (!robust->is_last) return distance <= radius;
    if (distance > fminf(seen->left, radii_at_once) * radius) return false;
    seen->left -= distance / radius;
    return true;
}

enum rc robust_check(struct robust *robust, const struct robust_chunk *chunk,
                     struct robust_verdict *verdict)
{
    float distance = robust_distance(chunk->in, chunk->own, chunk->count);

    return robust_judge(robust, chunk, distance, verdict);
}

float robust_members_radius(struct robust *robust, uint32_t chunk, const float *centre,
                            size_t count)
{
    const struct robust_chunk members = {
        .chunk = chunk, .own = centre, .count = count, .is_centred = true};
    float radius;

    CHECK(chunk < robust->chunks);
    radius = radius_of(robust, &robust->seen[chunk], &members);
    return radius > 0 ? radius : FLT_MAX;
}

static bool is_tracker(const struct robust *robust, const struct robust_chunk *chunk)
{
    return chunk->chunk > robust->trackers ||
           (chunk->chunk == robust->trackers && robust->model_tail == 0);
}

static enum rc judge(struct robust *robust, struct robust_seen *seen, bool is_of_tracker,
                     const struct robust_chunk *chunk, float distance,
                     struct robust_verdict *verdict)
{
    struct robust_history *history = history_of(seen, chunk);
    bool is_refused = is_of_tracker ? is_absurd_tracker(robust, chunk)
                                    : is_absurd(robust, seen, history, chunk, distance);
    float radius =
        robust->clips && chunk->may_clip && !is_refused ? radius_of(robust, seen, chunk) : 0;

    if (!robust->is_last) {
        robust_note(history, chunk->from, distance);
        if (chunk->is_mean) forget_silent(history);
    }
    *verdict = (struct robust_verdict){.distance = distance, .weight = 1};
    if (is_refused) return RC_LIMIT;
    if (radius == 0) return RC_OK;
    if (chunk->is_mean) {
        const bool is_taken = takes_mean(robust, seen, distance, radius);

        seen->refused = is_taken ? 0 : seen->refused + 1;
        return is_taken ? RC_OK : RC_REFUSED;
    }
    verdict->weight = robust_weight(distance, radius);
    return RC_OK;
}

struct robust_bounds robust_bounds(const struct robust *robust, const float *own, size_t count)
{
    float norm = robust_distance(own, NULL, count), first;
    double squared = 0;

    if (robust->outputs > 0) {
        norm = sqrtf((float)count / robust->outputs);
        return (struct robust_bounds){own_least * norm, own_most * norm};
    }
    for (uint32_t i = 0; i <= robust->chunks; i++) {
        squared += (double)robust->seen[i].norm * (double)robust->seen[i].norm;
    }
    first = squared == 0 ? norm : (float)sqrt(squared);
    return (struct robust_bounds){.least = own_least * first,
                                  .most = norm == 0 ? FLT_MAX : own_most * norm};
}

/* The model ends in this chunk. Values of a model and of a gradient differ by orders of magnitude:
 * each part is held against its own kind. */
static enum rc judge_parts(struct robust *robust, const struct robust_chunk *chunk,
                           struct robust_verdict *verdict)
{
    size_t tail = robust->model_tail;
    struct robust_chunk model = *chunk, tracker = *chunk;
    struct robust_verdict of_tracker;
    enum rc of_model_rc, of_tracker_rc;

    model.count = tail;
    tracker.count -= tail;
    tracker.own += tail;
    if (tracker.ours != NULL) tracker.ours += tail;
    tracker.in += tail;
    of_model_rc = judge(robust, &robust->seen[chunk->chunk], false, &model,
                        robust_distance(model.in, model.own, tail), verdict);
    of_tracker_rc = judge(robust, &robust->seen[robust->chunks], true, &tracker,
                          robust_distance(tracker.in, tracker.own, tracker.count), &of_tracker);
    verdict->weight = fminf(verdict->weight, of_tracker.weight);
    return of_model_rc != RC_OK ? of_model_rc : of_tracker_rc;
}

enum rc robust_judge(struct robust *robust, const struct robust_chunk *chunk, float distance,
                     struct robust_verdict *verdict)
{
    enum rc rc;

    CHECK(chunk->chunk < robust->chunks);
    if (chunk->chunk == robust->trackers && robust->model_tail > 0 &&
        chunk->count > robust->model_tail) {
        rc = judge_parts(robust, chunk, verdict);
        verdict->distance = distance;
        return rc;
    }
    return judge(robust, &robust->seen[chunk->chunk], is_tracker(robust, chunk), chunk, distance,
                 verdict);
}
