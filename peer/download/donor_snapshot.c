/*
 * The snapshots that a donor pins: hashed bucket by bucket, or first moved to where an int8 change
 * from an older one leads. Called by the job that takes the snapshot, not by the loop.
 */
#include "peer/download/donor.h"

#include "base/check.h"
#include "base/floats.h"
#include "base/mem.h"
#include "kernels/codec.h"
#include "peer/download/buckets.h"

size_t donor_change_bytes(void)
{
    return codec_bytes(CODEC_INT8, CHUNK_VALUES);
}

static bool has_shape_of(const struct donor_snapshot *snapshot, const struct donor_snapshot *base)
{
    if (snapshot->sections_count != base->sections_count) return false;
    for (uint32_t i = 0; i < snapshot->sections_count; i++) {
        if (snapshot->sections[i] != base->sections[i]) return false;
        if (snapshot->counts[i] != base->counts[i]) return false;
    }
    return true;
}

/* One bucket: encode how far it is from the base, and move to where that leads. */
static enum rc change_bucket(const float *base, float *values, size_t count, float *scratch,
                             uint8_t *change)
{
    enum rc rc;

    for (size_t i = 0; i < count; i++) {
        scratch[i] = values[i] - base[i];
    }
    if (!floats_are_finite(scratch, count)) return RC_NONFINITE;
    codec_encode(CODEC_INT8, scratch, count, change);
    rc = codec_decode(CODEC_INT8, change, scratch, count);
    bucket_add(base, scratch, values, count);
    return rc;
}

enum rc donor_snapshot_change(struct donor_snapshot *snapshot, const struct donor_snapshot *base)
{
    float *scratch;
    enum rc rc = RC_OK;

    if (!has_shape_of(snapshot, base)) return RC_MISMATCH;
    scratch = mem_array(CHUNK_VALUES, sizeof(float));
    if (scratch == NULL) return RC_NOMEM;
    for (uint32_t s = 0; s < snapshot->sections_count && rc == RC_OK; s++) {
        size_t count = snapshot->counts[s];
        uint8_t *to = mem_array(count / CHUNK_VALUES + 1, donor_change_bytes());

        snapshot->changes[s] = to;
        if (to == NULL) rc = RC_NOMEM;
        for (size_t at = 0; at < count && rc == RC_OK; at += CHUNK_VALUES) {
            size_t n = count - at < CHUNK_VALUES ? count - at : CHUNK_VALUES;

            rc = change_bucket(base->values[s] + at, snapshot->values[s] + at, n, scratch,
                               to + at / CHUNK_VALUES * donor_change_bytes());
        }
    }
    mem_free(scratch);
    return rc;
}

enum rc donor_snapshot_hash(struct donor_snapshot *snapshot)
{
    struct bucket_map map;
    struct digest *hashes;

    CHECK(snapshot->hashes == NULL);
    if (!bucket_map_init(&map, snapshot->counts, snapshot->sections_count)) return RC_LIMIT;
    for (uint32_t i = 0; i < snapshot->sections_count; i++) {
        if (!floats_are_finite(snapshot->values[i], snapshot->counts[i])) return RC_NONFINITE;
    }
    hashes = mem_array(bucket_map_count(&map), sizeof(hashes[0]));
    if (hashes == NULL) return RC_NOMEM;
    for (uint32_t i = 0; i < bucket_map_count(&map); i++) {
        struct bucket_span span = bucket_map_span(&map, i);

        hashes[i] =
            hash_of(snapshot->values[span.section] + span.offset, span.count * sizeof(float));
    }
    snapshot->hashes = hashes;
    snapshot->buckets = bucket_map_count(&map);
    return RC_OK;
}

void donor_snapshot_deinit(struct donor_snapshot *snapshot)
{
    for (uint32_t i = 0; i < STATE_SECTIONS_MAX; i++) {
        mem_free(snapshot->values[i]);
        mem_free(snapshot->changes[i]);
    }
    mem_free(snapshot->hashes);
    *snapshot = (struct donor_snapshot){0};
}
