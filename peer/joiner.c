/*
 * The taking side of a model download. One donor at a time: its manifest says what there is, pages
 * of hashes follow and must add up to the manifest's root, then buckets are asked for a few ahead.
 * A bucket counts only once its length, hash and finiteness are checked; a donor that lies, stalls
 * or goes away is left for the next one, and buckets whose hashes are the same there are kept.
 *
 *   IDLE, FAILED --begin--> ASKING --manifest--> LISTING --last page--> LOADING --last--> COMPLETE
 *                             ^  |                  |                      |
 *                             |  +---- next donor --+----------------------'     none left: FAILED
 *
 * Memory: hashes once the manifest matches our schema, planes once the root is proved. Loop thread.
 */
#include "peer/joiner.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "peer/buckets.h"

enum { WINDOW_BUCKETS = 8 };
enum bucket_state { BUCKET_MISSING, BUCKET_ASKED, BUCKET_HELD };

#define ANSWER_MAX  (15 * NS_PER_S) /* the donor may have to finish a training step first */
#define STALLED_MIN (5 * NS_PER_S)
#define STALLED_MAX (60 * NS_PER_S) /* a donor that drips cannot stretch it without end */

struct joiner {
    size_t expected[SECTION_COUNT]; /* values of each section of our schema */
    struct digest schema, moments;
    uint32_t want;
    bool has_other_moments; /* this donor, by another optimizer: they are left out */
    enum joiner_state state;
    struct rng rng;

    struct peer_id donors[JOINER_DONORS_MAX];
    size_t donors_count, donor_at;
    struct digest lineage; /* all zero: any */
    uint64_t deadline_ns;

    struct message_state_manifest manifest; /* of the donor of now, from LISTING on */
    struct bucket_map map;
    struct digest *listed; /* this donor's hashes, complete from LOADING on */
    uint32_t listed_count;
    struct hash root;

    /* What is here; outlives a donor. */
    bool has_data;
    struct bucket_map held_map;
    uint8_t held_sections[STATE_SECTIONS_MAX];
    float *planes[STATE_SECTIONS_MAX];
    struct digest *hashes; /* that the held buckets were checked against */
    uint8_t *buckets;      /* enum bucket_state of each */
    uint32_t held, asked;
    uint32_t cursor;      /* where to look for the next missing one */
    uint64_t bucket_ns;   /* when the last one came, or the first was asked for */
    uint64_t interval_ns; /* between buckets, smoothed */
};

struct joiner *joiner_create(const struct schema *schema, uint64_t seed)
{
    struct joiner *joiner = mem_alloc(sizeof(*joiner));

    if (joiner == NULL) return NULL;
    memcpy(joiner->expected, schema->values, sizeof(joiner->expected));
    joiner->schema = schema_digest(schema);
    joiner->want = 1 | 2;
    rng_init(&joiner->rng, seed, 0x6a6f696e);
    return joiner;
}

static void drop_data(struct joiner *joiner)
{
    for (uint32_t i = 0; i < STATE_SECTIONS_MAX; i++) {
        mem_free(joiner->planes[i]);
        joiner->planes[i] = NULL;
    }
    mem_free(joiner->hashes);
    mem_free(joiner->buckets);
    joiner->hashes = NULL;
    joiner->buckets = NULL;
    joiner->has_data = false;
    joiner->held = 0;
    joiner->asked = 0;
}

static void drop_listing(struct joiner *joiner)
{
    mem_free(joiner->listed);
    joiner->listed = NULL;
    joiner->listed_count = 0;
}

void joiner_destroy(struct joiner *joiner)
{
    if (joiner == NULL) return;
    drop_listing(joiner);
    drop_data(joiner);
    mem_free(joiner);
}

enum joiner_state joiner_state(const struct joiner *joiner)
{
    return joiner->state;
}

void joiner_set_want(struct joiner *joiner, uint32_t want)
{
    joiner->want = (want & 7) | 1;
}

void joiner_set_moments(struct joiner *joiner, struct digest moments)
{
    joiner->moments = moments;
}

/* --- going on and giving up ------------------------------------------------------------------ */

static bool is_running(const struct joiner *joiner)
{
    return joiner->state == JOINER_ASKING || joiner->state == JOINER_LISTING ||
           joiner->state == JOINER_LOADING;
}

static uint32_t wanted(const struct joiner *joiner)
{
    uint32_t moments = bucket_section_bit(SECTION_MOMENTS);

    return joiner->has_other_moments ? joiner->want & ~moments : joiner->want;
}

static void ask_donor(struct joiner *joiner, uint64_t now_ns, struct outbox *out)
{
    struct message message = {.type = MESSAGE_STATE_REQ};

    message.as.state_req.want = wanted(joiner);
    outbox_add(out, joiner->donors[joiner->donor_at], &message);
    joiner->state = JOINER_ASKING;
    joiner->deadline_ns = now_ns + ANSWER_MAX;
}

static void fail(struct joiner *joiner)
{
    drop_listing(joiner);
    joiner->state = JOINER_FAILED;
}

static void next_donor(struct joiner *joiner, uint64_t now_ns, struct outbox *out)
{
    drop_listing(joiner);
    joiner->donor_at++;
    joiner->has_other_moments = false;
    if (joiner->donor_at >= joiner->donors_count) {
        fail(joiner);
        return;
    }
    ask_donor(joiner, now_ns, out);
}

enum rc joiner_begin(struct joiner *joiner, const struct peer_id *donors, size_t donors_count,
                     struct digest lineage, uint64_t now_ns, struct outbox *out)
{
    if (joiner->state != JOINER_IDLE && joiner->state != JOINER_FAILED) return RC_BUSY;
    if (donors_count == 0) return RC_NOT_FOUND;
    joiner->donors_count = donors_count < JOINER_DONORS_MAX ? donors_count : JOINER_DONORS_MAX;
    memcpy(joiner->donors, donors, joiner->donors_count * sizeof(donors[0]));
    joiner->donor_at = 0;
    joiner->has_other_moments = false;
    joiner->lineage = lineage;
    ask_donor(joiner, now_ns, out);
    return RC_OK;
}

/* --- manifest -------------------------------------------------------------------------------- */

static bool is_zero(struct digest digest)
{
    const struct digest zero = {{0}};

    return digest_is_equal(digest, zero);
}

/* Sections: only such as were asked for, each once, of our sizes, and all of those there must be.
 * RC_UNSUPPORTED: all is well but the moments. */
static enum rc check_sections(const struct joiner *joiner,
                              const struct message_state_manifest *manifest, struct bucket_map *map)
{
    size_t values[STATE_SECTIONS_MAX];
    uint32_t seen = 0, must = 1;

    if (manifest->sections_count == 0 || manifest->sections_count > STATE_SECTIONS_MAX) {
        return RC_FORMAT;
    }
    for (uint32_t i = 0; i < manifest->sections_count; i++) {
        uint32_t bit = bucket_section_bit(manifest->sections[i]);

        if (bit == 0 || (bit & wanted(joiner)) == 0 || (bit & seen) != 0) return RC_FORMAT;
        bool is_moments = manifest->sections[i] == SECTION_MOMENTS;
        if (manifest->values[i] != joiner->expected[manifest->sections[i]]) {
            return is_moments ? RC_UNSUPPORTED : RC_MISMATCH;
        }
        if (is_moments && !digest_is_equal(manifest->moments, joiner->moments)) {
            return RC_UNSUPPORTED; /* as many values, but of another meaning */
        }
        values[i] = joiner->expected[manifest->sections[i]];
        seen |= bit;
    }
    if ((joiner->want & 2) != 0 && joiner->expected[SECTION_BUFFERS] > 0) must |= 2;
    if ((seen & must) != must) return RC_FORMAT;
    return bucket_map_init(map, values, manifest->sections_count) ? RC_OK : RC_LIMIT;
}

static enum rc check_manifest(const struct joiner *joiner,
                              const struct message_state_manifest *manifest, struct bucket_map *map)
{
    uint32_t buckets;
    enum rc rc;

    if (!digest_is_equal(manifest->schema, joiner->schema)) return RC_MISMATCH;
    if (is_zero(manifest->lineage)) return RC_MISMATCH;
    if (manifest->step > UINT64_MAX / 2 || manifest->samples > UINT64_MAX / 2) {
        return RC_FORMAT; /* nobody gets there honestly, and we count on from them */
    }
    if (!is_zero(joiner->lineage) && !digest_is_equal(manifest->lineage, joiner->lineage)) {
        return RC_MISMATCH;
    }
    rc = check_sections(joiner, manifest, map);
    if (rc != RC_OK) return rc;
    buckets = bucket_map_count(map);
    if (manifest->buckets != buckets) return RC_FORMAT;
    if (manifest->pages != (buckets + MANIFEST_HASHES_MAX - 1) / MANIFEST_HASHES_MAX) {
        return RC_FORMAT;
    }
    return RC_OK;
}

static void ask_page(struct joiner *joiner, uint64_t now_ns, struct outbox *out)
{
    struct message message = {.type = MESSAGE_MANIFEST_REQ};

    message.as.manifest_req.lease = joiner->manifest.lease;
    message.as.manifest_req.page = joiner->listed_count / MANIFEST_HASHES_MAX;
    outbox_add(out, joiner->donors[joiner->donor_at], &message);
    joiner->deadline_ns = now_ns + STALLED_MIN;
}

static enum rc on_manifest(struct joiner *joiner, const struct message_state_manifest *manifest,
                           uint64_t now_ns, struct outbox *out)
{
    struct bucket_map map;
    enum rc rc;

    if (joiner->state != JOINER_ASKING) return RC_STALE;
    rc = check_manifest(joiner, manifest, &map);
    if (rc == RC_UNSUPPORTED) { /* once: then moments are not asked for */
        joiner->has_other_moments = true;
        ask_donor(joiner, now_ns, out);
        return RC_OK;
    }
    if (rc != RC_OK) return rc;
    joiner->listed = mem_array(bucket_map_count(&map), sizeof(joiner->listed[0]));
    if (joiner->listed == NULL) return RC_NOMEM;
    joiner->manifest = *manifest;
    joiner->map = map;
    hash_init(&joiner->root);
    joiner->state = JOINER_LISTING;
    ask_page(joiner, now_ns, out);
    return RC_OK;
}

/* --- loading --------------------------------------------------------------------------------- */

static enum rc make_data(struct joiner *joiner)
{
    uint32_t buckets = bucket_map_count(&joiner->map);

    drop_data(joiner);
    joiner->hashes = mem_array(buckets, sizeof(joiner->hashes[0]));
    joiner->buckets = mem_array(buckets, sizeof(joiner->buckets[0]));
    if (joiner->hashes == NULL || joiner->buckets == NULL) goto short_of_memory;
    for (uint32_t i = 0; i < joiner->map.sections; i++) {
        joiner->planes[i] = mem_array(joiner->map.values[i], sizeof(float));
        if (joiner->planes[i] == NULL) goto short_of_memory;
    }
    joiner->held_map = joiner->map;
    memcpy(joiner->held_sections, joiner->manifest.sections, sizeof(joiner->held_sections));
    joiner->has_data = true;
    return RC_OK;
short_of_memory:
    drop_data(joiner);
    return RC_NOMEM;
}

static bool has_same_shape(const struct joiner *joiner)
{
    return joiner->has_data && joiner->held_map.sections == joiner->map.sections &&
           memcmp(joiner->held_sections, joiner->manifest.sections, joiner->map.sections) == 0;
}

/* Run by run, keep about WINDOW_BUCKETS asked for; again only when half of them have come, so that
 * a request covers several. */
static void ask_buckets(struct joiner *joiner, struct outbox *out)
{
    uint32_t buckets = bucket_map_count(&joiner->map);

    if (joiner->asked > WINDOW_BUCKETS / 2) return;
    while (joiner->asked < WINDOW_BUCKETS && joiner->held + joiner->asked < buckets) {
        struct message message = {.type = MESSAGE_BUCKET_REQ};
        struct message_bucket_req *request = &message.as.bucket_req;

        while (joiner->buckets[joiner->cursor] != BUCKET_MISSING) {
            joiner->cursor = (joiner->cursor + 1) % buckets;
        }
        request->lease = joiner->manifest.lease;
        request->index = joiner->cursor;
        while (joiner->cursor < buckets && joiner->asked < WINDOW_BUCKETS &&
               joiner->buckets[joiner->cursor] == BUCKET_MISSING) {
            joiner->buckets[joiner->cursor++] = BUCKET_ASKED;
            joiner->asked++;
            request->count++;
        }
        joiner->cursor %= buckets;
        outbox_add(out, joiner->donors[joiner->donor_at], &message);
    }
}

static void complete(struct joiner *joiner)
{
    drop_listing(joiner);
    joiner->state = JOINER_COMPLETE;
}

/* All pages are here and make the root: keep what agrees, ask for the rest. */
static enum rc start_loading(struct joiner *joiner, uint64_t now_ns, struct outbox *out)
{
    uint32_t buckets = bucket_map_count(&joiner->map);

    if (!has_same_shape(joiner)) {
        enum rc rc = make_data(joiner);

        if (rc != RC_OK) return rc;
    }
    joiner->held = 0;
    joiner->asked = 0;
    for (uint32_t i = 0; i < buckets; i++) {
        bool is_held = joiner->buckets[i] == BUCKET_HELD &&
                       digest_is_equal(joiner->hashes[i], joiner->listed[i]);

        joiner->buckets[i] = is_held ? BUCKET_HELD : BUCKET_MISSING;
        joiner->held += is_held;
    }
    memcpy(joiner->hashes, joiner->listed, buckets * sizeof(joiner->hashes[0]));
    drop_listing(joiner);
    joiner->cursor = (uint32_t)rng_below(&joiner->rng, buckets);
    joiner->bucket_ns = now_ns;
    joiner->interval_ns = 0;
    joiner->deadline_ns = now_ns + STALLED_MIN;
    joiner->state = JOINER_LOADING;
    if (joiner->held == buckets) {
        complete(joiner);
    } else {
        ask_buckets(joiner, out);
    }
    return RC_OK;
}

static enum rc on_page(struct joiner *joiner, const struct message_manifest_page *page,
                       uint64_t now_ns, struct outbox *out)
{
    uint32_t buckets = bucket_map_count(&joiner->map);
    uint32_t left = buckets - joiner->listed_count, count;
    struct digest root;

    if (joiner->state != JOINER_LISTING || page->lease != joiner->manifest.lease) return RC_STALE;
    if (page->page != joiner->listed_count / MANIFEST_HASHES_MAX) return RC_STALE;
    count = left < MANIFEST_HASHES_MAX ? left : MANIFEST_HASHES_MAX;
    if (page->hashes_bytes != count * DIGEST_BYTES) return RC_FORMAT;
    memcpy(joiner->listed + joiner->listed_count, page->hashes, page->hashes_bytes);
    hash_update(&joiner->root, page->hashes, page->hashes_bytes);
    joiner->listed_count += count;
    if (joiner->listed_count < buckets) {
        ask_page(joiner, now_ns, out);
        return RC_OK;
    }
    root = hash_final(&joiner->root);
    if (!digest_is_equal(root, joiner->manifest.root)) return RC_AUTH;
    return start_loading(joiner, now_ns, out);
}

/* What a bad answer means: another donor, or, when it is our memory that is short, the end. */
static enum rc settle(struct joiner *joiner, enum rc rc, uint64_t now_ns, struct outbox *out)
{
    if (rc == RC_NOMEM) {
        fail(joiner);
    } else if (rc != RC_OK && rc != RC_STALE) {
        next_donor(joiner, now_ns, out);
    }
    return rc;
}

enum rc joiner_on_message(struct joiner *joiner, struct peer_id from, const struct message *message,
                          uint64_t now_ns, struct outbox *out)
{
    enum rc rc;

    if (!is_running(joiner)) return RC_STALE;
    if (!peer_id_is_equal(from, joiner->donors[joiner->donor_at])) return RC_STALE;
    switch (message->type) {
    case MESSAGE_STATE_MANIFEST:
        rc = on_manifest(joiner, &message->as.state_manifest, now_ns, out);
        break;
    case MESSAGE_MANIFEST_PAGE:
        rc = on_page(joiner, &message->as.manifest_page, now_ns, out);
        break;
    case MESSAGE_STATE_DENY:
        next_donor(joiner, now_ns, out);
        return RC_OK;
    default:
        return RC_UNSUPPORTED;
    }
    return settle(joiner, rc, now_ns, out);
}

static enum rc take_bucket(struct joiner *joiner, uint32_t bucket, const uint8_t *bytes,
                           size_t count)
{
    struct bucket_span span = bucket_map_span(&joiner->map, bucket);
    float *to = joiner->planes[span.section] + span.offset;

    if (count != span.count * sizeof(float)) return RC_FORMAT;
    if (!digest_is_equal(hash_of(bytes, count), joiner->hashes[bucket])) return RC_AUTH;
    memcpy(to, bytes, count);
    return bucket_is_finite(to, span.count) ? RC_OK : RC_NONFINITE;
}

/* A bucket came: how long until the next one may take. */
static void be_patient(struct joiner *joiner, uint64_t now_ns)
{
    uint64_t interval_ns = now_ns - joiner->bucket_ns, wait_ns;

    joiner->interval_ns = joiner->interval_ns - joiner->interval_ns / 4 + interval_ns / 4;
    joiner->bucket_ns = now_ns;
    wait_ns = 8 * (joiner->interval_ns > interval_ns ? joiner->interval_ns : interval_ns);
    if (wait_ns < STALLED_MIN) wait_ns = STALLED_MIN;
    if (wait_ns > STALLED_MAX) wait_ns = STALLED_MAX;
    joiner->deadline_ns = now_ns + wait_ns;
}

enum rc joiner_on_bucket(struct joiner *joiner, struct peer_id from, uint16_t stream,
                         uint32_t bucket, const uint8_t *bytes, size_t count, uint64_t now_ns,
                         struct outbox *out)
{
    enum rc rc;

    if (joiner->state != JOINER_LOADING) return RC_STALE;
    if (!peer_id_is_equal(from, joiner->donors[joiner->donor_at])) return RC_STALE;
    if (stream != (uint16_t)joiner->manifest.lease) return RC_STALE;
    if (bucket >= bucket_map_count(&joiner->map)) {
        return settle(joiner, RC_FORMAT, now_ns, out);
    }
    if (joiner->buckets[bucket] != BUCKET_ASKED) return RC_STALE;
    rc = take_bucket(joiner, bucket, bytes, count);
    if (rc != RC_OK) return settle(joiner, rc, now_ns, out);
    joiner->buckets[bucket] = BUCKET_HELD;
    joiner->held++;
    joiner->asked--;
    be_patient(joiner, now_ns);
    if (joiner->held == bucket_map_count(&joiner->map)) {
        complete(joiner);
    } else {
        ask_buckets(joiner, out);
    }
    return RC_OK;
}

void joiner_on_link_lost(struct joiner *joiner, struct peer_id peer, uint64_t now_ns,
                         struct outbox *out)
{
    if (!is_running(joiner)) return;
    for (size_t i = joiner->donors_count; i > joiner->donor_at + 1; i--) { /* not to ask it later */
        if (!peer_id_is_equal(peer, joiner->donors[i - 1])) continue;
        memmove(&joiner->donors[i - 1], &joiner->donors[i],
                (joiner->donors_count - i) * sizeof(joiner->donors[0]));
        joiner->donors_count--;
    }
    if (peer_id_is_equal(peer, joiner->donors[joiner->donor_at])) next_donor(joiner, now_ns, out);
}

void joiner_tick(struct joiner *joiner, uint64_t now_ns, struct outbox *out)
{
    if (is_running(joiner) && now_ns >= joiner->deadline_ns) next_donor(joiner, now_ns, out);
}

uint64_t joiner_next_ns(const struct joiner *joiner)
{
    return is_running(joiner) ? joiner->deadline_ns : UINT64_MAX;
}

/* --- the result ------------------------------------------------------------------------------ */

const float *joiner_section(const struct joiner *joiner, enum section section, size_t *count)
{
    CHECK(joiner->state == JOINER_COMPLETE);
    for (uint32_t i = 0; i < joiner->map.sections; i++) {
        if (joiner->manifest.sections[i] != section) continue;
        *count = joiner->map.values[i];
        return joiner->planes[i];
    }
    *count = 0;
    return NULL;
}

const struct message_state_manifest *joiner_manifest(const struct joiner *joiner)
{
    CHECK(joiner->state == JOINER_COMPLETE);
    return &joiner->manifest;
}

bool joiner_donor(const struct joiner *joiner, struct peer_id *donor)
{
    if (!is_running(joiner) && joiner->state != JOINER_COMPLETE) return false;
    *donor = joiner->donors[joiner->donor_at];
    return true;
}

void joiner_finish(struct joiner *joiner)
{
    drop_listing(joiner);
    drop_data(joiner);
    joiner->state = JOINER_IDLE;
}

double joiner_progress(const struct joiner *joiner)
{
    if (joiner->state == JOINER_COMPLETE) return 1.0;
    if (joiner->state != JOINER_LOADING) return 0.0;
    return (double)joiner->held / bucket_map_count(&joiner->map);
}
