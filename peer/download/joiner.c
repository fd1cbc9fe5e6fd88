/*
 * The taking side of a model download. Donors are asked for a manifest, several at once where the
 * model is large; pages of hashes follow and must add up to the manifest's root; then buckets are
 * asked for a few ahead, of everyone whose listing agrees. A bucket counts only once its length,
 * hash and finiteness are checked; a donor that lies, stalls or goes away is left, and buckets
 * whose hashes are the same elsewhere are kept.
 *
 *   IDLE, FAILED --begin--> ASKING --manifest--> LISTING --last page--> LOADING --last--> COMPLETE
 *                             ^  |                  |                      |               |  ^
 *                             |  +--- no donor left-+-- none with a list --'               |  |
 *                             |  '--> FAILED                                     catch up -'--'
 *                             '-------------------------- refused ----------------'
 *
 * Memory: hashes once a manifest matches our schema, planes once a root is proved. Loop thread.
 */
#include "peer/download/joiner_internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "peer/times.h"

enum { WIDE_BUCKETS = 16 }; /* a model this large is asked of several donors */

struct joiner *joiner_create(const struct schema *schema, struct digest run_id, uint64_t seed)
{
    struct joiner *joiner = mem_alloc(sizeof(*joiner));

    if (joiner == NULL) return NULL;
    memcpy(joiner->expected, schema->values, sizeof(schema->values));
    joiner->schema = schema_digest(schema);
    joiner->run_id = run_id;
    joiner->options.want = 1 | 2;
    joiner->options.rule_values = schema->values[SECTION_MIXED];
    joiner->primary = JOINER_NONE;
    rng_init(&joiner->rng, seed, 0x6a6f696e);
    return joiner;
}

static void source_clear(struct source *source)
{
    mem_free(source->listed);
    *source = (struct source){.state = SOURCE_FREE};
}

void joiner_destroy(struct joiner *joiner)
{
    if (joiner == NULL) return;
    joiner_finish(joiner, NULL);
    mem_free(joiner);
}

enum joiner_state joiner_state(const struct joiner *joiner)
{
    return joiner->state;
}

struct joiner_options *joiner_options(struct joiner *joiner)
{
    return &joiner->options;
}

static bool is_running(const struct joiner *joiner)
{
    return joiner->state == JOINER_ASKING || joiner->state == JOINER_LISTING ||
           joiner->state == JOINER_LOADING;
}

/* ---- candidates and sources ---- */

static struct source *source_of(struct joiner *joiner, struct peer_id id)
{
    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        struct source *source = &joiner->sources[i];

        if (source->state != SOURCE_FREE && peer_id_is_equal(source->id, id)) return source;
    }
    return NULL;
}

static struct candidate *candidate_of(struct joiner *joiner, struct peer_id id)
{
    for (uint32_t i = 0; i < joiner->candidates_count; i++) {
        if (peer_id_is_equal(joiner->candidates[i].id, id)) return &joiner->candidates[i];
    }
    return NULL;
}

void joiner_ask(struct joiner *joiner, struct source *source, uint64_t now_ns, struct outbox *out)
{
    struct message message = {.type = MESSAGE_STATE_REQ};

    message.as.state_req.want = joiner_wanted(joiner, source);
    message.as.state_req.round = source->round;
    if (joiner->is_catching_up) message.as.state_req.base = source->manifest.lease;
    outbox_add(out, source->id, &message);
    source->state = SOURCE_ASKED;
    source->asked_ns = now_ns;
    source->deadline_ns = now_ns + JOINER_ANSWER_NS;
}

bool joiner_is_wide(const struct joiner *joiner)
{
    if (joiner->options.width > 0) return joiner->options.width > 1;
    return joiner->expected[SECTION_PARAMETERS] > (size_t)WIDE_BUCKETS * CHUNK_VALUES;
}

uint32_t joiner_width(const struct joiner *joiner)
{
    uint32_t width = joiner->options.width;

    if (joiner->is_sole) return 1;
    if (width > 0) return width < JOINER_SOURCES_MAX ? width : JOINER_SOURCES_MAX;
    return joiner_is_wide(joiner) ? JOINER_SOURCES_MAX : 1;
}

static uint32_t active(const struct joiner *joiner)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        count += joiner->sources[i].state != SOURCE_FREE;
    }
    return count;
}

/* Whoever is asked late can hardly have what the others gave; it gives what it has then. */
static uint64_t round_to_ask_for(const struct joiner *joiner)
{
    const struct source *primary;

    if (joiner->round == 0 || joiner->primary == JOINER_NONE) return joiner->round;
    primary = &joiner->sources[joiner->primary];
    if (joiner->held > bucket_map_count(&joiner->map) / JOINER_LITTLE_SHARE) return 0;
    return primary->manifest.round > joiner->round ? primary->manifest.round - 1 : joiner->round;
}

bool joiner_ask_next(struct joiner *joiner, uint64_t now_ns, struct outbox *out)
{
    struct source *source = NULL;

    for (uint32_t i = 0; i < JOINER_SOURCES_MAX && source == NULL; i++) {
        if (joiner->sources[i].state == SOURCE_FREE) source = &joiner->sources[i];
    }
    if (source == NULL) return false;
    for (uint32_t i = 0; i < joiner->candidates_count; i++) {
        struct candidate *candidate = &joiner->candidates[i];

        if (candidate->state != CANDIDATE_UNTRIED) continue;
        candidate->state = CANDIDATE_ASKED;
        source->id = candidate->id;
        source->round = round_to_ask_for(joiner);
        joiner_ask(joiner, source, now_ns, out);
        return true;
    }
    return false;
}

static void say_done(struct source *source, struct outbox *out)
{
    struct message message = {.type = MESSAGE_STATE_DONE};

    if (out == NULL || source->manifest.lease == 0) return; /* it has given none */
    message.as.state_done.lease = source->manifest.lease;
    outbox_add(out, source->id, &message);
}

static void fail(struct joiner *joiner, struct outbox *out)
{
    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        say_done(&joiner->sources[i], out);
        joiner_release(joiner, &joiner->sources[i]);
        source_clear(&joiner->sources[i]);
    }
    joiner->primary = JOINER_NONE;
    joiner->is_catching_up = false;
    joiner_drop_changes(joiner);
    joiner->state = JOINER_FAILED;
}

static void fill(struct joiner *joiner, uint64_t now_ns, struct outbox *out)
{
    if (!is_running(joiner) || joiner->is_catching_up) return;
    while (active(joiner) < joiner_width(joiner) && joiner_ask_next(joiner, now_ns, out)) {
    }
    if (active(joiner) == 0) fail(joiner, out);
}

/* Of those with a listing that with most of what is here; who was parked is better than nothing. */
static enum rc elect(struct joiner *joiner, uint64_t now_ns, struct outbox *out)
{
    struct source *best = NULL;
    uint32_t most = 0;

    joiner->primary = JOINER_NONE;
    joiner->state = JOINER_ASKING;
    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        struct source *source = &joiner->sources[i];
        bool is_ready = source->state == SOURCE_READY;
        uint32_t held;

        if (source->state == SOURCE_LISTING) joiner->state = JOINER_LISTING;
        if (!is_ready && source->state != SOURCE_PARKED) continue;
        held = 2 * joiner_count_held(joiner, source) + is_ready;
        if (best != NULL && held <= most) continue;
        best = source;
        most = held;
    }
    return best == NULL ? RC_OK : joiner_set_primary(joiner, best, now_ns, out);
}

/* Catching up came to nothing: what was complete before still is. */
static void stay_behind(struct joiner *joiner)
{
    joiner->is_catching_up = false;
    joiner_drop_changes(joiner);
    joiner->primary = JOINER_NONE;
    joiner->state = JOINER_COMPLETE;
}

void joiner_let_go(struct joiner *joiner, struct source *source, bool is_bad, struct outbox *out)
{
    struct candidate *candidate = candidate_of(joiner, source->id);

    if (candidate != NULL) candidate->state = is_bad ? CANDIDATE_USED : CANDIDATE_UNTRIED;
    say_done(source, out);
    joiner_release(joiner, source);
    source_clear(source);
}

void joiner_drop(struct joiner *joiner, struct source *source, bool is_bad, uint64_t now_ns,
                 struct outbox *out)
{
    bool is_primary = source == joiner_primary(joiner);

    joiner_let_go(joiner, source, is_bad, out);
    if (joiner->is_catching_up) {
        stay_behind(joiner);
        return;
    }
    if (is_primary || joiner->primary == JOINER_NONE) {
        if (elect(joiner, now_ns, out) != RC_OK) {
            fail(joiner, out);
            return;
        }
    }
    fill(joiner, now_ns, out);
    /* What it owed may be all that is missing, and nothing else comes that would ask for it. */
    if (joiner->state == JOINER_LOADING) joiner_ask_all(joiner, now_ns, out);
}

void joiner_complete(struct joiner *joiner, struct outbox *out)
{
    const struct source *primary = joiner_primary(joiner);

    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        if (i == joiner->primary) continue;
        say_done(&joiner->sources[i], out);
        source_clear(&joiner->sources[i]);
    }
    joiner->manifest = primary->manifest;
    joiner->manifest_ns = primary->asked_ns;
    joiner->donor = primary->id;
    joiner->is_catching_up = false;
    joiner_drop_changes(joiner); /* there are none left, but room for them */
    joiner->state = JOINER_COMPLETE;
}

/* ---- begin, and what comes ---- */

/* What is here is as it listed it, and it may still have that. */
static void ask_giver_first(struct joiner *joiner)
{
    struct candidate *giver = candidate_of(joiner, joiner->giver), held;

    if (giver == NULL) return;
    held = *giver;
    *giver = joiner->candidates[0];
    joiner->candidates[0] = held;
}

enum rc joiner_begin(struct joiner *joiner, const struct peer_id *donors, size_t donors_count,
                     struct digest lineage, uint64_t round, uint64_t now_ns, struct outbox *out)
{
    if (joiner->state != JOINER_IDLE && joiner->state != JOINER_FAILED) return RC_BUSY;
    if (donors_count == 0) return RC_NOT_FOUND;
    if (donors_count > JOINER_DONORS_MAX) donors_count = JOINER_DONORS_MAX;
    for (size_t i = 0; i < donors_count; i++) {
        joiner->candidates[i] = (struct candidate){donors[i], CANDIDATE_UNTRIED};
    }
    joiner->candidates_count = (uint32_t)donors_count;
    if (joiner->has_data && digest_is_equal(joiner->lineage, lineage)) {
        ask_giver_first(joiner);
    } else {
        joiner->may_mix = joiner->is_mixed = false;
    }
    joiner->lineage = lineage;
    joiner->round = round;
    joiner->is_sole = false;
    joiner->trials = 0;
    joiner->received_bytes = 0;
    joiner->donors_given = 0;
    joiner->state = JOINER_ASKING;
    fill(joiner, now_ns, out);
    return RC_OK;
}

/* What a bad answer means: another donor, or, when it is our memory that is short, the end. */
static enum rc settle(struct joiner *joiner, struct source *source, enum rc rc, uint64_t now_ns,
                      struct outbox *out)
{
    if (rc == RC_NOMEM && !joiner->is_catching_up) {
        fail(joiner, out);
    } else if (rc != RC_OK && rc != RC_STALE) {
        joiner_drop(joiner, source, true, now_ns, out);
    }
    return rc;
}

enum rc joiner_on_message(struct joiner *joiner, struct peer_id from, const struct message *message,
                          uint64_t now_ns, struct outbox *out)
{
    struct source *source = source_of(joiner, from);
    enum rc rc;

    if (!is_running(joiner) || source == NULL) return RC_STALE;
    switch (message->type) {
    case MESSAGE_STATE_MANIFEST:
        rc = joiner_on_manifest(joiner, source, &message->as.state_manifest, now_ns, out);
        break;
    case MESSAGE_MANIFEST_PAGE:
        rc = joiner_on_page(joiner, source, &message->as.manifest_page, now_ns, out);
        break;
    case MESSAGE_STATE_DENY:
        joiner_drop(joiner, source, true, now_ns, out);
        return RC_OK;
    default:
        return RC_UNSUPPORTED;
    }
    return settle(joiner, source, rc, now_ns, out);
}

enum rc joiner_on_bucket(struct joiner *joiner, struct peer_id from, uint16_t stream,
                         uint32_t bucket, const uint8_t *bytes, size_t count, uint64_t now_ns,
                         struct outbox *out)
{
    struct source *source = source_of(joiner, from);
    enum rc rc;

    joiner->received_bytes += count;
    if (joiner->state != JOINER_LOADING || source == NULL) return RC_STALE;
    if (source->state != SOURCE_READY) return RC_STALE;
    if (stream != (uint16_t)source->manifest.lease) return RC_STALE;
    rc = joiner_take(joiner, source, bucket, bytes, count, now_ns, out);
    return settle(joiner, source, rc, now_ns, out);
}

void joiner_offer(struct joiner *joiner, struct peer_id donor, uint64_t now_ns, struct outbox *out)
{
    struct candidate *candidate = candidate_of(joiner, donor);

    if (joiner->state == JOINER_IDLE || joiner->state == JOINER_FAILED) return;
    if (candidate != NULL || joiner->candidates_count == JOINER_DONORS_MAX) return;
    joiner->candidates[joiner->candidates_count++] = (struct candidate){donor, CANDIDATE_UNTRIED};
    fill(joiner, now_ns, out);
}

/* It has gone while it gave, and has not lied: what it gave is worth as much as before. */
static void note_gone(struct joiner *joiner, const struct source *source)
{
    static const struct digest any;

    if (source != joiner_primary(joiner) || joiner->state != JOINER_LOADING) return;
    joiner->may_mix = joiner->options.mixes && !joiner->is_catching_up &&
                      !digest_is_equal(joiner->lineage, any); /* of which there may be several */
    if (joiner->may_mix) joiner_keep_held(joiner, source);
}

void joiner_on_link_lost(struct joiner *joiner, struct peer_id peer, uint64_t now_ns,
                         struct outbox *out)
{
    struct candidate *candidate = candidate_of(joiner, peer);
    struct source *source = source_of(joiner, peer);

    if (candidate != NULL) candidate->state = CANDIDATE_USED; /* not to ask it later */
    if (source == NULL) return;
    source->manifest.lease = 0; /* there is nobody to tell */
    note_gone(joiner, source);
    if (is_running(joiner)) {
        joiner_drop(joiner, source, true, now_ns, out);
    } else { /* complete: catching up is no longer possible */
        source_clear(source);
        joiner->primary = JOINER_NONE;
    }
}

void joiner_tick(struct joiner *joiner, uint64_t now_ns, struct outbox *out)
{
    for (uint32_t i = 0; i < JOINER_SOURCES_MAX && is_running(joiner); i++) {
        struct source *source = &joiner->sources[i];

        if (source->state != SOURCE_FREE && now_ns >= source->deadline_ns) {
            note_gone(joiner, source);
            joiner_drop(joiner, source, true, now_ns, out);
        }
    }
    if (now_ns >= joiner_judge_ns(joiner)) joiner_judge(joiner, now_ns, out);
}

uint64_t joiner_next_ns(const struct joiner *joiner)
{
    uint64_t next_ns = joiner_judge_ns(joiner);

    if (!is_running(joiner)) return UINT64_MAX;
    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        const struct source *source = &joiner->sources[i];

        if (source->state != SOURCE_FREE && source->deadline_ns < next_ns) {
            next_ns = source->deadline_ns;
        }
    }
    return next_ns;
}

/* ---- the result ---- */

const float *joiner_section(const struct joiner *joiner, uint32_t section, size_t *count)
{
    CHECK(joiner->state == JOINER_COMPLETE);
    for (uint32_t i = 0; i < joiner->map.sections; i++) {
        if (joiner->sections[i] != section) continue;
        *count = joiner->map.values[i];
        return joiner->planes[i];
    }
    *count = 0;
    return NULL;
}

float *joiner_take_section(struct joiner *joiner, uint32_t section)
{
    float *plane = NULL;

    CHECK(joiner->state == JOINER_COMPLETE);
    for (uint32_t i = 0; i < joiner->map.sections; i++) {
        if (joiner->sections[i] != section) continue;
        plane = joiner->planes[i];
        joiner->planes[i] = NULL;
    }
    return plane;
}

const struct message_state_manifest *joiner_manifest(const struct joiner *joiner)
{
    CHECK(joiner->state == JOINER_COMPLETE);
    return &joiner->manifest;
}

bool joiner_listing(const struct joiner *joiner, struct peer_id *donor, uint32_t *lease,
                    uint64_t *round)
{
    const struct message_state_manifest *manifest = &joiner->manifest;

    if (joiner->state == JOINER_LOADING) {
        *donor = joiner->sources[joiner->primary].id;
        manifest = &joiner->sources[joiner->primary].manifest;
    } else if (joiner->state == JOINER_COMPLETE) {
        *donor = joiner->donor;
    } else {
        return false;
    }
    *lease = manifest->lease;
    *round = manifest->round;
    return true;
}

/* From here on only what the last donor lists counts. True: of that something is missing. */
static bool unmix(struct joiner *joiner, struct source *last)
{
    bool was_mixed = joiner->is_mixed;

    joiner->may_mix = joiner->is_mixed = false;
    if (!was_mixed || last == NULL) return false;
    joiner_release(joiner, last);
    joiner->held = joiner_count_held(joiner, last);
    return joiner->held < bucket_map_count(&joiner->map);
}

void joiner_refuse(struct joiner *joiner, uint64_t now_ns, struct outbox *out)
{
    struct source *source = joiner_primary(joiner);

    CHECK(joiner->state == JOINER_COMPLETE);
    if (unmix(joiner, source)) {
        joiner->state = JOINER_LOADING;
        joiner_ask_all(joiner, now_ns, out);
        return;
    }
    memset(joiner->is_here, 0, bucket_map_count(&joiner->map) * sizeof(joiner->is_here[0]));
    joiner->held = 0;
    joiner->state = JOINER_ASKING;
    if (source != NULL) {
        joiner_drop(joiner, source, true, now_ns, out);
    } else {
        fill(joiner, now_ns, out);
    }
}

enum rc joiner_catch_up(struct joiner *joiner, uint64_t now_ns, struct outbox *out)
{
    struct source *source = joiner_primary(joiner);

    CHECK(joiner->state == JOINER_COMPLETE);
    if (source == NULL || joiner->is_mixed) return RC_NOT_FOUND;
    mem_free(source->listed);
    source->listed = NULL;
    joiner->is_catching_up = true;
    joiner->state = JOINER_ASKING;
    joiner_ask(joiner, source, now_ns, out);
    return RC_OK;
}

void joiner_finish(struct joiner *joiner, struct outbox *out)
{
    fail(joiner, out);
    joiner_drop_data(joiner);
    joiner->state = JOINER_IDLE;
}

/* Whose listing is loaded, who is being asked, or who gave the model. */
static bool find_donor(const struct joiner *joiner, struct peer_id *donor)
{
    *donor = joiner->donor;
    if (joiner->state == JOINER_COMPLETE) return true;
    for (uint32_t i = 0; i < JOINER_SOURCES_MAX && is_running(joiner); i++) {
        const struct source *source = &joiner->sources[i];

        if (source->state == SOURCE_FREE) continue;
        if (joiner->primary != JOINER_NONE && joiner->primary != i) continue;
        *donor = source->id;
        return true;
    }
    return false;
}

struct joiner_stats joiner_stats(const struct joiner *joiner)
{
    bool is_loading = joiner->state == JOINER_LOADING;
    struct joiner_stats stats = {.is_mixed = joiner->is_mixed,
                                 .received_bytes = joiner->received_bytes,
                                 .donors = joiner->donors_given,
                                 .manifest_ns = joiner->manifest_ns};

    stats.has_donor = find_donor(joiner, &stats.donor);
    for (uint32_t i = 0; i < JOINER_SOURCES_MAX; i++) {
        if (joiner->sources[i].state != SOURCE_READY) continue;
        stats.sources++;
        stats.use.streams += is_loading;
        if (!is_loading) continue;
        stats.use.bytes += (uint64_t)joiner->sources[i].asked * CHUNK_VALUES * sizeof(float);
    }
    if (joiner->state == JOINER_COMPLETE) stats.progress = 1.0;
    if (is_loading) stats.progress = (double)joiner->held / bucket_map_count(&joiner->map);
    for (uint32_t i = 0; joiner->has_data && i < joiner->map.sections; i++) {
        stats.total_bytes += joiner->map.values[i] * sizeof(float);
    }
    stats.held_bytes = (uint64_t)(stats.progress * (double)stats.total_bytes);
    return stats;
}
