/*
 * Buckets: whom to ask for which, what came, and whether a donor is fast enough.
 *
 * The listing of one donor, the primary, says what the model is. Others whose listings agree with
 * it in a good part of what is missing help; who does not agree is let go, to be asked again if the
 * primary goes away, and then, where no two members hold the same, what is here stays and it gives
 * the rest: the caller has that mixture confirmed, or refuses it. A donor so slow that the rest
 * would take long is compared with another: that one is tried for a while, and the faster is kept.
 * At the end of a download what a slow donor still owes is asked of a fast one as well.
 */
#include "peer/download/joiner_internal.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "kernels/codec.h"
#include "peer/times.h"

enum { TRIALS_MAX = 3, USEFUL_SHARE = 8, REASKED_MAX = 2, ROUNDS_APART_MAX = 64 };

/* ---- what is here ---- */

/* Donors may list unlike sections: then their buckets have other numbers, and another count. */
static bool has_same_shape(const struct joiner *joiner, const struct source *source)
{
    return joiner->has_data && joiner->map.sections == source->map.sections &&
           memcmp(joiner->sections, source->manifest.sections, source->map.sections) == 0;
}

/* As the listing of `source` says, or mixed in. */
static bool is_held(const struct joiner *joiner, const struct source *source, uint32_t bucket)
{
    if (!has_same_shape(joiner, source) || !joiner->is_here[bucket]) return false;
    return joiner->is_mixed || digest_is_equal(joiner->hashes[bucket], source->listed[bucket]);
}

uint32_t joiner_count_held(const struct joiner *joiner, const struct source *source)
{
    uint32_t held = 0;

    for (uint32_t i = 0; i < bucket_map_count(&source->map); i++) {
        held += is_held(joiner, source, i);
    }
    return held;
}

void joiner_keep_held(struct joiner *joiner, const struct source *source)
{
    for (uint32_t i = 0; i < bucket_map_count(&joiner->map); i++) {
        joiner->is_here[i] = is_held(joiner, source, i);
    }
}

void joiner_drop_data(struct joiner *joiner)
{
    joiner_drop_changes(joiner);
    for (uint32_t i = 0; i < STATE_SECTIONS_MAX; i++) {
        mem_free(joiner->planes[i]);
        joiner->planes[i] = NULL;
    }
    mem_free(joiner->hashes);
    mem_free(joiner->is_here);
    mem_free(joiner->asked_of);
    joiner->hashes = NULL;
    joiner->is_here = NULL;
    joiner->asked_of = NULL;
    joiner->has_data = false;
    joiner->may_mix = joiner->is_mixed = false;
    joiner->held = 0;
}

static enum rc make_data(struct joiner *joiner, const struct source *source)
{
    uint32_t buckets = bucket_map_count(&source->map);

    joiner_drop_data(joiner);
    joiner->hashes = mem_array(buckets, sizeof(joiner->hashes[0]));
    joiner->is_here = mem_array(buckets, sizeof(joiner->is_here[0]));
    joiner->asked_of = mem_array(buckets, sizeof(joiner->asked_of[0]));
    if (joiner->hashes == NULL || joiner->is_here == NULL || joiner->asked_of == NULL) {
        goto short_of_memory;
    }
    for (uint32_t i = 0; i < source->map.sections; i++) {
        joiner->planes[i] = mem_array(source->map.values[i], sizeof(float));
        if (joiner->planes[i] == NULL) goto short_of_memory;
    }
    joiner->map = source->map;
    memcpy(joiner->sections, source->manifest.sections, sizeof(joiner->sections));
    joiner->has_data = true;
    return RC_OK;
short_of_memory:
    joiner_drop_data(joiner);
    return RC_NOMEM;
}

void joiner_drop_changes(struct joiner *joiner)
{
    uint32_t buckets = joiner->has_data ? bucket_map_count(&joiner->map) : 0;

    for (uint32_t i = 0; joiner->changes != NULL && i < buckets; i++) {
        mem_free(joiner->changes[i]);
    }
    mem_free(joiner->changes);
    mem_free(joiner->scratch);
    joiner->changes = NULL;
    joiner->scratch = NULL;
}

/* ---- whom to ask for what ---- */

void joiner_release(struct joiner *joiner, struct source *source)
{
    uint8_t number = (uint8_t)(source - joiner->sources + 1);

    source->asked = 0;
    if (!joiner->has_data) return;
    for (uint32_t i = 0; i < bucket_map_count(&joiner->map); i++) {
        if (joiner->asked_of[i] == number) joiner->asked_of[i] = 0;
    }
    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        joiner->sources[i].is_drained = false;
    }
}

static bool may_ask(const struct joiner *joiner, const struct source *source, uint32_t bucket)
{
    const struct source *primary = &joiner->sources[joiner->primary];

    if (!has_same_shape(joiner, source)) return false;
    if (joiner->asked_of[bucket] != 0) return false;
    if (is_held(joiner, primary, bucket)) return false;
    return source == primary || digest_is_equal(source->listed[bucket], primary->listed[bucket]);
}

/* Run by run, keep about a window asked for; again only when half of it has come, so that a request
 * covers several. */
static void ask_buckets(struct joiner *joiner, struct source *source, struct outbox *out)
{
    uint32_t buckets = bucket_map_count(&joiner->map), window = JOINER_WINDOW_BUCKETS;
    uint8_t number = (uint8_t)(source - joiner->sources + 1);

    if (source->asked > JOINER_WINDOW_BUCKETS / 2) return;
    if (joiner->options.credit != NULL) { /* what is refused is asked for at the next tick */
        window = source->asked + joiner->options.credit(joiner->options.context, source->asked,
                                                        window - source->asked);
    }
    while (source->asked < window && !source->is_drained) {
        struct message message = {.type = MESSAGE_BUCKET_REQ};
        struct message_bucket_req *request = &message.as.bucket_req;
        uint32_t seen = 0;

        while (seen < buckets && !may_ask(joiner, source, source->cursor)) {
            source->cursor = (source->cursor + 1) % buckets;
            seen++;
        }
        source->is_drained = seen == buckets;
        if (source->is_drained) return;
        request->lease = source->manifest.lease;
        request->index = source->cursor;
        while (source->cursor < buckets && source->asked < window &&
               may_ask(joiner, source, source->cursor)) {
            joiner->asked_of[source->cursor++] = number;
            source->asked++;
            request->count++;
        }
        source->cursor %= buckets;
        outbox_add(out, source->id, &message);
    }
}

static uint32_t helpers(const struct joiner *joiner)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        count += joiner->sources[i].state == SOURCE_READY;
    }
    return count - (joiner->primary != JOINER_NONE);
}

void joiner_ask_all(struct joiner *joiner, uint64_t now_ns, struct outbox *out)
{
    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        struct source *source = &joiner->sources[i];

        if (source->state != SOURCE_READY) continue;
        if (source->asked == 0) {
            source->bucket_ns = now_ns;
            source->deadline_ns = now_ns + JOINER_STALLED_MIN_NS;
        }
        ask_buckets(joiner, source, out);
        if (source->asked == 0) source->deadline_ns = UINT64_MAX; /* it owes nothing */
    }
}

/* The download is at its end and `idle` has nothing left to give: what a much slower one owes is
 * asked of it. What both send then counts once. */
static void relieve(struct joiner *joiner, struct source *idle, uint64_t now_ns)
{
    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        struct source *slow = &joiner->sources[i];
        uint64_t waited_ns = now_ns - slow->bucket_ns;

        if (slow == idle || slow->state != SOURCE_READY || slow->asked == 0) continue;
        if (slow->is_relieved) continue;
        if (slow->interval_ns > waited_ns) waited_ns = slow->interval_ns;
        if (waited_ns < 4 * idle->interval_ns + JOINER_SLACK_NS) continue;
        slow->is_relieved = true;
        joiner_release(joiner, slow);
        slow->is_drained = true;
        slow->deadline_ns = UINT64_MAX;
    }
}

static void start_measuring(struct source *source, uint64_t now_ns)
{
    source->since_ns = now_ns;
    source->got = 0;
}

/* The primary is another: of what is under way, keep what it lists alike. */
static void keep_asked(struct joiner *joiner)
{
    const struct source *primary = joiner_primary(joiner);

    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        joiner->sources[i].asked = 0;
        joiner->sources[i].is_drained = false;
        joiner->sources[i].is_relieved = false;
    }
    for (uint32_t i = 0; i < bucket_map_count(&joiner->map); i++) {
        struct source *of;

        if (joiner->asked_of[i] > JOINER_SOURCES_MAX) joiner->asked_of[i] = 0;
        if (joiner->asked_of[i] == 0) continue;
        of = &joiner->sources[joiner->asked_of[i] - 1];
        if (of->state != SOURCE_READY || !has_same_shape(joiner, of) ||
            !digest_is_equal(of->listed[i], primary->listed[i]) || is_held(joiner, primary, i)) {
            joiner->asked_of[i] = 0;
        } else {
            of->asked++;
        }
    }
}

/* The one before has gone: is more here than this one lists alike? */
static void mix(struct joiner *joiner, const struct source *source)
{
    uint32_t alike = joiner_count_held(joiner, source);

    if (joiner->may_mix && !joiner->is_mixed) {
        joiner->is_mixed = true;
        joiner->is_mixed = joiner_count_held(joiner, source) > alike;
    }
    joiner->may_mix = false;
}

enum rc joiner_set_primary(struct joiner *joiner, struct source *source, uint64_t now_ns,
                           struct outbox *out)
{
    if (!has_same_shape(joiner, source)) {
        enum rc rc = make_data(joiner, source);

        if (rc != RC_OK) return rc;
        for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) { /* those that helped the one before */
            struct source *other = &joiner->sources[i];

            if (other == source || other->state != SOURCE_READY) continue;
            if (!has_same_shape(joiner, other)) joiner_let_go(joiner, other, false, out);
        }
    }
    source->state = SOURCE_READY;
    mix(joiner, source);
    joiner->primary = (uint32_t)(source - joiner->sources);
    keep_asked(joiner);
    joiner->giver = source->id;
    joiner->held = joiner_count_held(joiner, source);
    source->cursor = (uint32_t)rng_below(&joiner->rng, bucket_map_count(&source->map));
    start_measuring(source, now_ns);
    joiner->state = JOINER_LOADING;
    if (joiner->held == bucket_map_count(&source->map)) {
        joiner_complete(joiner, out);
    } else {
        joiner_ask_all(joiner, now_ns, out);
    }
    return RC_OK;
}

/* Of what is missing, how much `source` lists as the primary does. */
static bool is_useful(const struct joiner *joiner, const struct source *source)
{
    const struct source *primary = &joiner->sources[joiner->primary];
    uint32_t missing = 0, agreed = 0;

    if (!has_same_shape(joiner, source)) return false;
    for (uint32_t i = 0; i < bucket_map_count(&joiner->map); i++) {
        if (is_held(joiner, primary, i)) continue;
        missing++;
        agreed += digest_is_equal(source->listed[i], primary->listed[i]);
    }
    return agreed > 0 && agreed >= missing / USEFUL_SHARE;
}

/* ---- listings of several rounds ---- */

/* Donors that list what the same group round left agree on every bucket. A round may end between
 * their answers; then who listed the older is asked for the newer, which it will have in a moment.
 * Twice at most, and not for a round that is far away: a donor may say what it likes. */
static bool ask_for_newer(struct joiner *joiner, struct source *source, uint64_t now_ns,
                          struct outbox *out)
{
    const struct source *primary = joiner_primary(joiner);
    uint64_t ours = source->manifest.round, newest = primary->manifest.round;

    if (source->round == 0 || source->reasked == REASKED_MAX) return false;
    if (ours >= newest || newest - ours > ROUNDS_APART_MAX) return false;
    joiner_release(joiner, source);
    source->reasked++;
    source->round = newest - 1; /* the manifest names the round after it */
    mem_free(source->listed);
    source->listed = NULL;
    joiner_ask(joiner, source, now_ns, out);
    return true;
}

static bool is_reasked(struct joiner *joiner, struct source *source, uint64_t now_ns,
                       struct outbox *out)
{
    return !is_useful(joiner, source) && ask_for_newer(joiner, source, now_ns, out);
}

/* What is here came of a listing like that of `source`, before its link or another's was lost; what
 * the primary lists alike is less. */
static bool is_fuller(const struct joiner *joiner, const struct source *source)
{
    uint32_t little = bucket_map_count(&joiner->map) / JOINER_LITTLE_SHARE;

    return !joiner->is_catching_up && joiner_count_held(joiner, source) > joiner->held + little;
}

/* What came so far is little, and of an older round than what `source` lists. */
static bool is_newer(const struct joiner *joiner, const struct source *source)
{
    const struct source *primary = &joiner->sources[joiner->primary];
    uint64_t ours = primary->manifest.round, newest = source->manifest.round;

    if (primary->round == 0 || primary->reasked == REASKED_MAX) return false;
    if (ours >= newest || newest - ours > ROUNDS_APART_MAX) return false;
    return !is_useful(joiner, source) &&
           joiner->held <= bucket_map_count(&joiner->map) / JOINER_LITTLE_SHARE;
}

static void ask_the_older(struct joiner *joiner, uint64_t now_ns, struct outbox *out)
{
    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        struct source *source = &joiner->sources[i];

        if (source->state != SOURCE_READY || i == joiner->primary) continue;
        if (is_useful(joiner, source)) continue;
        if (!ask_for_newer(joiner, source, now_ns, out)) {
            joiner_let_go(joiner, source, false, out);
        }
    }
}

static enum rc make_changes(struct joiner *joiner)
{
    joiner->changes = mem_array(bucket_map_count(&joiner->map), sizeof(joiner->changes[0]));
    joiner->scratch = mem_array(2 * CHUNK_VALUES, sizeof(float));
    return joiner->changes == NULL || joiner->scratch == NULL ? RC_NOMEM : RC_OK;
}

enum rc joiner_on_listed(struct joiner *joiner, struct source *source, uint64_t now_ns,
                         struct outbox *out)
{
    struct source *primary = joiner_primary(joiner);

    if (joiner->is_catching_up) {
        enum rc rc = make_changes(joiner);

        if (rc != RC_OK) return rc;
    }
    if (primary == NULL || primary == source) {
        return joiner_set_primary(joiner, source, now_ns, out);
    }
    if (!is_fuller(joiner, source) && is_reasked(joiner, source, now_ns, out)) return RC_OK;
    if (is_fuller(joiner, source) || is_newer(joiner, source)) {
        enum rc rc = joiner_set_primary(joiner, source, now_ns, out);

        if (rc == RC_OK && joiner->state == JOINER_LOADING) ask_the_older(joiner, now_ns, out);
        return rc;
    }
    if (is_useful(joiner, source)) {
        source->cursor = (uint32_t)rng_below(&joiner->rng, bucket_map_count(&joiner->map));
        start_measuring(source, now_ns);
        joiner_ask_all(joiner, now_ns, out);
        return RC_OK;
    }
    if (joiner->trials > 0) { /* another was asked because this one is slow */
        for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
            if (joiner->sources[i].state == SOURCE_PARKED) { /* one comparison at a time */
                joiner->is_sole = true; /* or it would be asked again at once */
                joiner_drop(joiner, source, false, now_ns, out);
                return RC_OK;
            }
        }
        primary->state = SOURCE_PARKED;
        primary->deadline_ns = UINT64_MAX;
        return joiner_set_primary(joiner, source, now_ns, out);
    }
    joiner->is_sole = true;
    joiner_drop(joiner, source, false, now_ns, out);
    return RC_OK;
}

/* ---- what came ---- */

static float *bucket_values(const struct joiner *joiner, uint32_t bucket, size_t *count)
{
    struct bucket_span span = bucket_map_span(&joiner->map, bucket);

    *count = span.count;
    return joiner->planes[span.section] + span.offset;
}

static enum rc take_whole(struct joiner *joiner, const struct digest *expected, uint32_t bucket,
                          const uint8_t *bytes, size_t count)
{
    size_t values;
    float *to = bucket_values(joiner, bucket, &values);

    if (count != values * sizeof(float)) return RC_FORMAT;
    if (!digest_is_equal(hash_of(bytes, count), *expected)) return RC_AUTH;
    joiner->is_here[bucket] = false;
    memcpy(to, bytes, count);
    if (!floats_are_finite(to, values)) return RC_NONFINITE;
    joiner->hashes[bucket] = *expected;
    joiner->is_here[bucket] = true;
    return RC_OK;
}

/* The sum must be what the manifest says; the plane stays as it is until all changes are here. */
static enum rc take_change(struct joiner *joiner, const struct digest *expected, uint32_t bucket,
                           const uint8_t *bytes, size_t count)
{
    size_t values;
    const float *base = bucket_values(joiner, bucket, &values);
    enum rc rc;

    if (count != codec_bytes(CODEC_INT8, values)) return RC_FORMAT;
    rc = codec_decode(CODEC_INT8, bytes, joiner->scratch, values);
    if (rc != RC_OK) return rc;
    bucket_add(base, joiner->scratch, joiner->scratch + CHUNK_VALUES, values);
    if (!digest_is_equal(hash_of(joiner->scratch + CHUNK_VALUES, values * sizeof(float)),
                         *expected)) {
        return RC_AUTH;
    }
    if (!floats_are_finite(joiner->scratch + CHUNK_VALUES, values)) return RC_NONFINITE;
    joiner->changes[bucket] = mem_raw(count);
    if (joiner->changes[bucket] == NULL) return RC_NOMEM;
    memcpy(joiner->changes[bucket], bytes, count);
    return RC_OK;
}

static void apply_changes(struct joiner *joiner, const struct source *source)
{
    for (uint32_t i = 0; i < bucket_map_count(&joiner->map); i++) {
        size_t values;
        float *base = bucket_values(joiner, i, &values);
        enum rc rc;

        if (joiner->changes[i] == NULL) continue;
        rc = codec_decode(CODEC_INT8, joiner->changes[i], joiner->scratch, values);
        CHECK(rc == RC_OK); /* it was when it came */
        bucket_add(base, joiner->scratch, base, values);
        joiner->hashes[i] = source->listed[i];
    }
    joiner_drop_changes(joiner);
}

/* A bucket came: how long until the next one may take. */
static void be_patient(struct source *source, uint64_t now_ns)
{
    uint64_t interval_ns = now_ns - source->bucket_ns, wait_ns;

    source->interval_ns = source->interval_ns - source->interval_ns / 4 + interval_ns / 4;
    source->bucket_ns = now_ns;
    wait_ns = 8 * (source->interval_ns > interval_ns ? source->interval_ns : interval_ns);
    if (wait_ns < JOINER_STALLED_MIN_NS) wait_ns = JOINER_STALLED_MIN_NS;
    if (wait_ns > JOINER_STALLED_MAX_NS) wait_ns = JOINER_STALLED_MAX_NS;
    source->deadline_ns = now_ns + wait_ns;
}

enum rc joiner_take(struct joiner *joiner, struct source *source, uint32_t bucket,
                    const uint8_t *bytes, size_t count, uint64_t now_ns, struct outbox *out)
{
    struct source *primary = joiner_primary(joiner);
    const struct digest *expected;
    enum rc rc;

    CHECK(primary != NULL);
    if (bucket >= bucket_map_count(&joiner->map)) return RC_FORMAT;
    if (joiner->asked_of[bucket] != source - joiner->sources + 1) return RC_STALE;
    expected = &primary->listed[bucket];
    rc = joiner->is_catching_up ? take_change(joiner, expected, bucket, bytes, count)
                                : take_whole(joiner, expected, bucket, bytes, count);
    if (rc != RC_OK) return rc;
    joiner->asked_of[bucket] = 0;
    joiner->held++;
    source->asked--;
    if (source->got++ == 0) source->first_ns = now_ns;
    joiner->donors_given += !source->has_given;
    source->has_given = true;
    if (joiner->is_catching_up) joiner->asked_of[bucket] = UINT8_MAX; /* waits in `changes` */
    be_patient(source, now_ns);
    if (joiner->held == bucket_map_count(&joiner->map)) {
        if (joiner->is_catching_up) apply_changes(joiner, primary);
        joiner_complete(joiner, out);
        return RC_OK;
    }
    ask_buckets(joiner, source, out);
    if (source->asked == 0) {
        relieve(joiner, source, now_ns);
        ask_buckets(joiner, source, out);
    }
    if (source->asked == 0) source->deadline_ns = UINT64_MAX;
    joiner_judge(joiner, now_ns, out);
    return RC_OK;
}

/* ---- is it fast enough? ---- */

/* How long the rest would take with `source` alone, by what it gave since it was measured. */
static uint64_t left_ns(const struct joiner *joiner, const struct source *source, uint64_t now_ns)
{
    uint64_t each_ns = now_ns - source->since_ns;
    uint32_t missing = 0;

    if (source->got == 0) return UINT64_MAX;
    if (source->got > 1) each_ns = (source->bucket_ns - source->first_ns) / (source->got - 1);
    for (uint32_t i = 0; i < bucket_map_count(&source->map); i++) {
        missing += !is_held(joiner, source, i);
    }
    return each_ns * missing;
}

static struct source *parked(struct joiner *joiner)
{
    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        if (joiner->sources[i].state == SOURCE_PARKED) return &joiner->sources[i];
    }
    return NULL;
}

static bool is_asking(const struct joiner *joiner)
{
    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        enum source_state state = joiner->sources[i].state;

        if (state == SOURCE_ASKED || state == SOURCE_LISTING) return true;
    }
    return false;
}

uint64_t joiner_judge_ns(const struct joiner *joiner)
{
    if (joiner->state != JOINER_LOADING || joiner->is_catching_up) return UINT64_MAX;
    if (joiner->primary == JOINER_NONE) return UINT64_MAX;
    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        if (joiner->sources[i].state != SOURCE_PARKED) continue;
        return joiner->sources[joiner->primary].since_ns + JOINER_TRIAL_NS;
    }
    return UINT64_MAX; /* a donor that gives is judged when it gives */
}

void joiner_judge(struct joiner *joiner, uint64_t now_ns, struct outbox *out)
{
    struct source *primary = joiner_primary(joiner), *other = parked(joiner);

    if (joiner->state != JOINER_LOADING || joiner->is_catching_up || primary == NULL) return;
    if (now_ns < primary->since_ns + JOINER_TRIAL_NS) return;
    if (other == NULL) {
        if (helpers(joiner) > 0 || is_asking(joiner) || joiner->trials == TRIALS_MAX) return;
        if (left_ns(joiner, primary, now_ns) <= JOINER_REST_NS) {
            start_measuring(primary, now_ns); /* afresh: it may grow slow */
            return;
        }
        if (joiner_ask_next(joiner, now_ns, out)) joiner->trials++;
        return;
    }
    if (left_ns(joiner, primary, now_ns) <= left_ns(joiner, other, now_ns)) {
        joiner_drop(joiner, other, true, now_ns, out);
        start_measuring(primary, now_ns);
    } else {
        joiner_drop(joiner, primary, true, now_ns, out); /* the parked one takes over */
    }
}
