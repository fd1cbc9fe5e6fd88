/* Differences that all members of a group get from all others; see delta.h. Any thread. */
#include "averaging/codec/delta.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/floats.h"

#include <math.h>
#include <string.h>

enum { MEAN_WHOLE = 255, KEPT_HEAD = 8 };

/* ---- error feedback ---- */

enum rc feedback_encode(const struct feedback *feedback, const float *anchor, const float *x,
                        const float *residual, size_t count, float *left, float *scratch,
                        uint8_t *bytes, size_t *bytes_count)
{
    const struct codec *codec = feedback->codec;
    enum rc rc;

    for (size_t i = 0; i < count; i++) {
        left[i] = feedback->decay * residual[i] + (anchor[i] - x[i]);
    }
    if (!floats_are_finite(left, count)) return RC_NONFINITE;
    *bytes_count = codec->ops->encode(codec, feedback->seed, left, count, bytes);
    rc = codec->ops->decode(codec, bytes, *bytes_count, scratch, count);
    for (size_t i = 0; i < count && rc == RC_OK; i++) {
        left[i] -= scratch[i];
    }
    return rc;
}

enum rc feedback_take_back(const struct codec *codec, const uint8_t *bytes, size_t bytes_count,
                           size_t count, float *left, float *scratch)
{
    enum rc rc = codec->ops->decode(codec, bytes, bytes_count, scratch, count);

    for (size_t i = 0; i < count && rc == RC_OK; i++) {
        left[i] += scratch[i];
    }
    return rc;
}

/* ---- what a member sends of a chunk ---- */

bool delta_is_offer(const struct codec *codec, size_t values, size_t count)
{
    if (count < DELTA_OFFER_HEAD) return false;
    count -= DELTA_OFFER_HEAD;
    return codec_is_size(codec, count, values) || count == values * sizeof(float);
}

void delta_offer_write(const struct delta_offer *offer, uint8_t head[DELTA_OFFER_HEAD])
{
    store_le32(head, offer->anchor);
    store_le32(head + 4, offer->momentum);
    store_le32(head + 8, offer->round);
}

enum rc delta_offer_parse(const struct codec *codec, const uint8_t *bytes, size_t count,
                          size_t values, struct delta_offer *offer)
{
    struct delta_offer parsed = {0};

    if (count < DELTA_OFFER_HEAD) return RC_FORMAT;
    parsed.anchor = load_le32(bytes);
    parsed.momentum = load_le32(bytes + 4);
    parsed.round = load_le32(bytes + 8);
    parsed.body = bytes + DELTA_OFFER_HEAD;
    parsed.body_bytes = count - DELTA_OFFER_HEAD;
    if (!codec_is_size(parsed.anchor == 0 ? &codec_f32 : codec, parsed.body_bytes, values)) {
        return RC_FORMAT;
    }
    *offer = parsed;
    return RC_OK;
}

/* ---- what the owner of a chunk returns ---- */

static uint32_t count_of(uint64_t members)
{
    return (uint32_t)__builtin_popcountll(members);
}

/* For differences, with what the rule keeps beside them, in one record. */
static size_t room_for_bodies(size_t values)
{
    return BULK_BYTES_MAX - INNER_HEADER_BYTES - DELTA_MEAN_HEAD -
           DELTA_PLANES_MAX * values * sizeof(float);
}

_Static_assert((DELTA_PLANES_MAX + 2) * CHUNK_VALUES * sizeof(float) <= BULK_BYTES_MAX / 2 + 16,
               "two members of any codec fit");

bool delta_is_mean(const struct codec *codec, size_t values, size_t count)
{
    size_t most = GROUP_MEMBERS_MAX * (DELTA_BODY_HEAD + codec->ops->bytes_max(codec, values));

    if (count < DELTA_MEAN_HEAD || count > BULK_BYTES_MAX - INNER_HEADER_BYTES) return false;
    return count <= DELTA_MEAN_HEAD + most + DELTA_PLANES_MAX * values * sizeof(float);
}

/* How many bytes the differences of so many members are, all checked; 0: there is another number of
 * them in `count` bytes. */
static size_t bodies_bytes(const struct codec *codec, const uint8_t *bytes, size_t count,
                           size_t values, uint32_t members)
{
    size_t at = 0;

    for (uint32_t i = 0; i < members; i++) {
        size_t body;

        if (count - at < DELTA_BODY_HEAD) return 0;
        body = load_le32(bytes + at);
        at += DELTA_BODY_HEAD;
        if (body > count - at || !codec_is_size(codec, body, values)) return 0;
        at += body;
    }
    return at;
}

enum rc delta_mean_parse(const struct codec *codec, const uint8_t *bytes, size_t count,
                         size_t values, uint32_t self, struct delta_mean *mean)
{
    struct delta_mean parsed = {0};
    size_t plane = values * sizeof(float), bodies = plane;
    uint32_t others;

    if (count < DELTA_MEAN_HEAD || self >= GROUP_MEMBERS_MAX) return RC_FORMAT;
    parsed.members = load_le64(bytes);
    parsed.is_whole = bytes[8] == MEAN_WHOLE;
    parsed.planes = parsed.is_whole ? 0 : bytes[8];
    parsed.bodies = bytes + DELTA_MEAN_HEAD;
    if (parsed.members == 0 || parsed.planes > DELTA_PLANES_MAX) return RC_FORMAT;
    count -= DELTA_MEAN_HEAD;
    others = count_of(parsed.members & ~(UINT64_C(1) << self));
    if (!parsed.is_whole) bodies = bodies_bytes(codec, parsed.bodies, count, values, others);
    if ((bodies == 0 && others > 0) || count != bodies + parsed.planes * plane) return RC_FORMAT;
    parsed.state = parsed.bodies + bodies;
    *mean = parsed;
    return RC_OK;
}

static const uint8_t *next_body(const uint8_t *at, struct delta_body *body)
{
    body->count = load_le32(at);
    body->bytes = at + DELTA_BODY_HEAD;
    return body->bytes + body->count;
}

uint32_t delta_bodies(const struct delta_mean *mean, uint32_t self, struct delta_body own,
                      struct delta_body bodies[GROUP_MEMBERS_MAX])
{
    const uint8_t *at = mean->bodies;
    uint32_t count = 0;

    for (uint32_t i = 0; i < GROUP_MEMBERS_MAX; i++) {
        if ((mean->members >> i & 1) == 0) continue;
        if (i == self) {
            bodies[count] = own;
        } else {
            at = next_body(at, &bodies[count]);
        }
        count++;
    }
    return count;
}

static bool is_like(const struct delta_offer *a, const struct delta_offer *b, bool whole)
{
    return a->anchor == b->anchor && (!whole || a->momentum == b->momentum);
}

/* One whose anchor, or `whole`: anchor and momentum, most have of those with the anchor of `among`
 * (NULL: of all that have one). NULL: there is none. */
static const struct delta_offer *most_have(const struct delta_set *set, uint32_t self,
                                           const struct delta_offer *among, bool whole)
{
    const struct delta_offer *best = NULL;
    uint32_t most = 0;

    for (uint32_t k = 0; k <= GROUP_MEMBERS_MAX; k++) {
        const struct delta_offer *offer = set->offers[k == 0 ? self : k - 1]; /* ours wins a tie */
        uint32_t votes = 0;

        if (offer == NULL || offer->anchor == 0) continue;
        if (among != NULL && !is_like(offer, among, false)) continue;
        for (uint32_t i = 0; i < GROUP_MEMBERS_MAX; i++) {
            votes += set->offers[i] != NULL && is_like(set->offers[i], offer, whole);
        }
        if (votes < most || (votes == most && offer->round <= best->round)) continue;
        best = offer;
        most = votes;
    }
    return best;
}

void delta_choose(size_t values, uint32_t self, struct delta_set *set)
{
    const struct delta_offer *own = set->offers[self], *right = most_have(set, self, NULL, false);
    const struct delta_offer *whole = right != NULL ? most_have(set, self, right, true) : NULL;
    size_t room = room_for_bodies(values);

    set->members = set->astray = 0;
    set->is_whole = right == NULL;
    if (set->is_whole) return;
    for (uint32_t i = 0; i < GROUP_MEMBERS_MAX; i++) {
        const struct delta_offer *offer = set->offers[i];

        if (offer == NULL) continue;
        if (own != NULL && is_like(own, whole, true) && !is_like(offer, whole, true)) {
            set->astray |= UINT64_C(1) << i;
        }
        if (!is_like(offer, right, false) || (set->far >> i & 1) != 0) continue;
        if (DELTA_BODY_HEAD + offer->body_bytes > room) continue;
        set->members |= UINT64_C(1) << i;
        room -= DELTA_BODY_HEAD + offer->body_bytes;
    }
    /* All of those are too far: ours counts alone. It is a difference, as an owner without an
     * anchor cannot say what is far. */
    if (set->members == 0 && own != NULL) set->members = UINT64_C(1) << self;
}

static void store_plane(const float *values, size_t count, uint8_t *bytes)
{
    (void)codec_f32.ops->encode(&codec_f32, 0, values, count, bytes);
}

/* Kept: who is astray (u64), then as it is sent to them, with everybody's differences. */
struct blob *delta_keep(size_t values, const struct delta_set *set, const float *const *state,
                        size_t planes)
{
    size_t bodies = 0, plane = values * sizeof(float), sent = set->astray == 0 ? 0 : planes;
    struct blob *kept;
    uint8_t *at;

    CHECK(planes <= DELTA_PLANES_MAX);
    for (uint32_t i = 0; i < GROUP_MEMBERS_MAX; i++) {
        if ((set->members >> i & 1) != 0) bodies += DELTA_BODY_HEAD + set->offers[i]->body_bytes;
    }
    kept = blob_create(KEPT_HEAD + DELTA_MEAN_HEAD + bodies + sent * plane);
    if (kept == NULL) return NULL;
    store_le64(kept->bytes, set->astray);
    store_le64(kept->bytes + KEPT_HEAD, set->members);
    kept->bytes[KEPT_HEAD + 8] = (uint8_t)sent;
    at = kept->bytes + KEPT_HEAD + DELTA_MEAN_HEAD;
    for (uint32_t i = 0; i < GROUP_MEMBERS_MAX; i++) {
        const struct delta_offer *offer = set->offers[i];

        if ((set->members >> i & 1) == 0) continue;
        store_le32(at, (uint32_t)offer->body_bytes);
        memcpy(at + DELTA_BODY_HEAD, offer->body, offer->body_bytes);
        at += DELTA_BODY_HEAD + offer->body_bytes;
    }
    for (size_t i = 0; i < sent; i++) {
        store_plane(state[i], values, at);
        at += plane;
    }
    CHECK(at == kept->bytes + kept->count);
    return kept;
}

struct blob *delta_keep_whole(const float *mean, size_t values, uint64_t members)
{
    struct blob *kept = blob_create(KEPT_HEAD + DELTA_MEAN_HEAD + values * sizeof(float));

    if (kept == NULL) return NULL;
    store_le64(kept->bytes, 0);
    store_le64(kept->bytes + KEPT_HEAD, members);
    kept->bytes[KEPT_HEAD + 8] = MEAN_WHOLE;
    store_plane(mean, values, kept->bytes + KEPT_HEAD + DELTA_MEAN_HEAD);
    return kept;
}

struct blob *delta_for(size_t values, struct blob *kept, uint32_t place)
{
    const uint8_t *head = kept->bytes + KEPT_HEAD, *bodies = head + DELTA_MEAN_HEAD, *at = bodies;
    const uint8_t *end = kept->bytes + kept->count, *own = NULL, *own_end = NULL, *state;
    uint64_t astray = load_le64(kept->bytes), members = load_le64(head);
    size_t planes = (astray >> place & 1) != 0 ? head[8] : 0, before, after;
    struct delta_body body;
    struct blob *blob;

    CHECK(place < GROUP_MEMBERS_MAX);
    if (head[8] == MEAN_WHOLE) return blob_slice(kept, KEPT_HEAD, kept->count - KEPT_HEAD);
    state = end - head[8] * values * sizeof(float);
    for (uint32_t i = 0; i < GROUP_MEMBERS_MAX; i++) {
        if ((members >> i & 1) == 0) continue;
        if (i == place) own = at;
        at = next_body(at, &body);
        if (i == place) own_end = at;
    }
    CHECK(at == state);
    before = (size_t)((own == NULL ? state : own) - bodies);
    after = own == NULL ? 0 : (size_t)(state - own_end);
    blob = blob_create(DELTA_MEAN_HEAD + before + after + planes * values * sizeof(float));
    if (blob == NULL) return NULL;
    store_le64(blob->bytes, members);
    blob->bytes[8] = (uint8_t)planes;
    memcpy(blob->bytes + DELTA_MEAN_HEAD, bodies, before);
    if (after > 0) memcpy(blob->bytes + DELTA_MEAN_HEAD + before, own_end, after);
    memcpy(blob->bytes + DELTA_MEAN_HEAD + before + after, state, planes * values * sizeof(float));
    return blob;
}

/* ---- the mean ---- */

static double norm_of(const float *values, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++) {
        sum += (double)values[i] * (double)values[i];
    }
    return sqrt(sum);
}

/* The upper of the two in the middle: of two members neither is cut, and members of whom most are
 * silent are not cut to nothing. */
static double median_of(const double *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t below = 0, equal = 0;

        for (uint32_t j = 0; j < count; j++) {
            below += values[j] < values[i];
            equal += values[j] == values[i];
        }
        if (below <= count / 2 && below + equal > count / 2) return values[i];
    }
    return 0;
}

/* What each counts as, times what it sent. */
static enum rc scales_of(const struct codec *codec, const struct delta_body *bodies, uint32_t count,
                         size_t values, float *scratch, float *scales)
{
    double norms[GROUP_MEMBERS_MAX], median;

    for (uint32_t i = 0; i < count; i++) {
        enum rc rc = codec->ops->decode(codec, bodies[i].bytes, bodies[i].count, scratch, values);

        if (rc != RC_OK) return rc;
        norms[i] = norm_of(scratch, values);
    }
    median = median_of(norms, count);
    for (uint32_t i = 0; i < count; i++) {
        scales[i] = norms[i] > median ? (float)(median / norms[i]) : 1;
    }
    return RC_OK;
}

enum rc delta_mean_of(const struct codec *codec, const struct delta_body *bodies, uint32_t count,
                      size_t values, struct delta_how how, float *out, float *scratch,
                      float *senders)
{
    float scales[GROUP_MEMBERS_MAX];
    enum rc rc = RC_OK;

    CHECK(count > 0 && count <= GROUP_MEMBERS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        scales[i] = 1;
    }
    if (how.clips && count > 2) rc = scales_of(codec, bodies, count, values, scratch, scales);
    memset(out, 0, values * sizeof *out);
    memset(senders, 0, values * sizeof *senders);
    for (uint32_t i = 0; i < count && rc == RC_OK; i++) {
        rc = codec->ops->decode(codec, bodies[i].bytes, bodies[i].count, scratch, values);
        for (size_t k = 0; k < values && rc == RC_OK; k++) {
            out[k] += scales[i] * scratch[k];
            senders[k] += scratch[k] != 0;
        }
    }
    if (rc != RC_OK) return rc;
    for (size_t k = 0; k < values; k++) {
        float by = how.by_sender ? senders[k] : (float)count;

        if (by > 0) out[k] /= by;
    }
    return floats_are_finite(out, values) ? RC_OK : RC_NONFINITE;
}
