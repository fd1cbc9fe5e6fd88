/*
 * Who trains on what. Rendezvous hashing: every member scores every block with a hash of (member,
 * block) and the highest score owns it; nobody has to coordinate, and who leaves takes nothing but
 * its own blocks along. Dirichlet: the paper draws the classes of each peer; we draw the peers of
 * each class, as Yurochkin et al. 2019 (arXiv:1905.12022) do, because then the shards are disjoint
 * and complete. Pure; any thread.
 */
#include "replica/data/shard_spec.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/units.h"

#include <string.h>

enum { SHARES_MAX = 1 << 20 };
#define ALPHA_MIN        1e-3
#define ALPHA_MAX        1e6
#define DIRICHLET_STREAM UINT64_C(0x6469726963680000) /* "dirich", and the class */

static const char dirichlet_prefix[] = "dirichlet:";

static enum rc parse_alpha(const char *shard, struct shard_spec *spec, struct fault *why)
{
    size_t column = sizeof dirichlet_prefix;

    if (!units_parse_share(shard + column - 1, &spec->alpha) || !(spec->alpha >= ALPHA_MIN) ||
        spec->alpha > ALPHA_MAX) {
        return fault_set(why, RC_PARSE,
                         "--shard %.100s: column %zu: ALPHA must be a number from 0.001 to 1e6",
                         shard, column);
    }
    spec->kind = SHARD_DIRICHLET;
    return RC_OK;
}

/* I/N, 0 <= I < N. */
static enum rc parse_shard_of(const char *text, struct shard_spec *spec, struct fault *why)
{
    const char *slash = strchr(text, '/');
    size_t length = slash == NULL ? 0 : (size_t)(slash - text);
    char index_text[16] = "";
    uint64_t index, count;

    if (slash == NULL) {
        return fault_set(why, RC_PARSE, "--shard-of %.100s: column %zu: expected I/N, as in 0/4",
                         text, strlen(text) + 1);
    }
    if (length < sizeof index_text) memcpy(index_text, text, length);
    if (!units_parse_count(index_text, &index)) {
        return fault_set(why, RC_PARSE, "--shard-of %.100s: column 1: I must be a number", text);
    }
    if (!units_parse_count(slash + 1, &count) || count == 0 || count > SHARES_MAX) {
        return fault_set(why, RC_PARSE, "--shard-of %.100s: column %zu: N must be from 1 to %d",
                         text, length + 2, SHARES_MAX);
    }
    if (index >= count) {
        return fault_set(why, RC_PARSE,
                         "--shard-of %.100s: column 1: I counts from 0 and must be below N", text);
    }
    spec->is_fixed = true;
    spec->index = (uint32_t)index;
    spec->count = (uint32_t)count;
    return RC_OK;
}

enum rc shard_spec_parse(const char *shard, const char *shard_of, struct shard_spec *spec,
                         struct fault *why)
{
    struct shard_spec parsed = {.kind = SHARD_IID, .index = 0, .count = 1};
    enum rc rc = RC_OK;

    CHECK(spec != NULL);
    if (shard == NULL || strcmp(shard, "iid") == 0)
        parsed.kind = SHARD_IID;
    else if (strcmp(shard, "all") == 0)
        parsed.kind = SHARD_ALL;
    else if (strncmp(shard, dirichlet_prefix, sizeof dirichlet_prefix - 1) == 0) {
        rc = parse_alpha(shard, &parsed, why);
    } else {
        rc = fault_set(why, RC_PARSE,
                       "--shard %.100s: column 1: unknown split; there are iid, dirichlet:ALPHA "
                       "and all",
                       shard);
    }
    if (rc == RC_OK && shard_of != NULL) rc = parse_shard_of(shard_of, &parsed, why);
    if (rc != RC_OK) return rc;
    if (parsed.kind == SHARD_DIRICHLET && !parsed.is_fixed) {
        return fault_set(why, RC_USAGE,
                         "--shard %.100s needs --shard-of I/N: its shards are drawn for N peers",
                         shard);
    }
    *spec = parsed;
    return RC_OK;
}

static uint64_t hash_member(struct peer_id id)
{
    uint64_t hash = rng_mix(load_le64(id.bytes), load_le64(id.bytes + 8));

    return rng_mix(hash, load_le32(id.bytes + 16));
}

void shard_spec_rendezvous(struct peer_id self, const struct peer_id *members, size_t members_count,
                           uint32_t blocks, bool *wanted)
{
    CHECK((members != NULL || members_count == 0) && (wanted != NULL || blocks == 0));
    for (uint32_t block = 0; block < blocks; block++) {
        uint64_t best = 0;
        const struct peer_id *owner = NULL;

        for (size_t i = 0; i < members_count; i++) {
            uint64_t score = rng_mix(hash_member(members[i]), block);

            /* Members come sorted: of equal scores the smaller id wins, for everybody. */
            if (owner != NULL && score <= best) continue;
            best = score;
            owner = &members[i];
        }
        wanted[block] = owner != NULL && peer_id_is_equal(*owner, self);
    }
}

void shard_spec_fixed(const struct shard_spec *spec, uint32_t blocks, bool *wanted)
{
    CHECK(spec->count > 0 && spec->index < spec->count);
    for (uint32_t block = 0; block < blocks; block++) {
        wanted[block] = block % spec->count == spec->index;
    }
}

/* The part of [0, 1) of one class that belongs to shard `spec->index`: from *begin to *end. Sums
 * run in the same order for every index, so one shard ends exactly where the next begins. */
static void draw_range(const struct shard_spec *spec, struct rng *rng, double *begin, double *end)
{
    double total = 0.0, before = 0.0, own = 0.0;

    for (uint32_t i = 0; i < spec->count; i++) {
        double weight = rng_gamma(rng, spec->alpha);

        if (i < spec->index) before += weight;
        if (i == spec->index) own = weight;
        total += weight;
    }
    /* Tiny alphas underflow: all weights are 0. The limit is one peer taking the whole class. */
    if (!(total > 0.0)) {
        uint64_t lucky = rng_below(rng, spec->count);

        before = spec->index > lucky ? 1.0 : 0.0;
        own = spec->index == lucky ? 1.0 : 0.0;
        total = 1.0;
    }
    *begin = before / total;
    *end = (before + own) / total;
}

/* Set the flags of those of the class's samples (shuffled) that belong to the shard. */
static void mark_class(const struct shard_spec *spec, uint64_t seed, uint32_t class,
                       uint32_t *samples, size_t count, bool *is_mine)
{
    struct rng rng;
    double begin, end;

    rng_init(&rng, seed, DIRICHLET_STREAM + class);
    rng_shuffle(&rng, samples, count);
    draw_range(spec, &rng, &begin, &end);
    for (size_t i = 0; i < count; i++) {
        double at = ((double)i + 0.5) / (double)count;

        if (at >= begin && at < end) is_mine[samples[i]] = true;
    }
}

/* List the samples of each class in turn and mark the shard's. `samples` has room for all. */
static void mark_shard(const struct shard_spec *spec, uint64_t seed, const uint32_t *labels,
                       size_t labels_count, uint32_t classes, uint32_t *samples, bool *is_mine)
{
    for (uint32_t class = 0; class < classes; class ++) {
        size_t count = 0;

        for (size_t i = 0; i < labels_count; i++) {
            if (labels[i] == class) samples[count++] = (uint32_t)i;
        }
        mark_class(spec, seed, class, samples, count, is_mine);
    }
}

enum rc shard_spec_dirichlet(const struct shard_spec *spec, uint64_t seed, const uint32_t *labels,
                             size_t labels_count, uint32_t classes, uint32_t **indices,
                             size_t *count)
{
    uint32_t *samples = mem_array(labels_count, sizeof *samples);
    bool *is_mine = mem_array(labels_count, sizeof *is_mine);
    size_t filled = 0;

    CHECK(spec->kind == SHARD_DIRICHLET && spec->is_fixed && labels_count < UINT32_MAX);
    CHECK(spec->index < spec->count && spec->alpha > 0.0);
    if (samples == NULL || is_mine == NULL) {
        mem_free(samples);
        mem_free(is_mine);
        return RC_NOMEM;
    }
    mark_shard(spec, seed, labels, labels_count, classes, samples, is_mine);
    for (size_t i = 0; i < labels_count; i++) {
        if (is_mine[i]) samples[filled++] = (uint32_t)i;
    }
    mem_free(is_mine);
    *indices = samples;
    *count = filled;
    return RC_OK;
}
