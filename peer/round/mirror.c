/*
 * Rounds in which neighbours keep copies of each other's models, where they differ from the
 * journey of round.c: what travels is the step of a copy, or all of it (averaging/codec/mirror.h,
 * averaging/edge/mirror.c). `own` is the copy that the others hold of us; it outlives the rounds.
 */
#include "peer/round/internal.h"

#include "averaging/codec/mirror.h"
#include "base/check.h"
#include "base/floats.h"
#include "base/hash_wide.h"
#include "base/mem.h"

static const struct digest none;

bool round_mirror_allocate(struct round *round)
{
    if (!round->ops->has_mirrors) return true;
    round->mirror_hashes = mem_array(round->chunks, sizeof *round->mirror_hashes);
    round->whole = mem_array(round->chunks, sizeof(struct blob *));
    return round->mirror_hashes != NULL && round->whole != NULL;
}

void round_mirror_deinit(struct round *round)
{
    for (uint32_t i = 0; i < MIRRORS_MAX; i++) {
        mem_free(round->mirrors[i]);
    }
    mem_free(round->mirror_hashes);
    round_blobs_clear(round->whole, round->chunks);
    mem_free(round->whole);
}

/* ---- 3, 4: our own copy takes a step ---- */

static enum rc step_chunk(struct round *round, uint32_t chunk, bool is_new)
{
    struct range range = round_chunk_range(round, chunk);
    struct blob *blob;

    if (is_new) { /* nobody has it yet: it is the model itself, and goes out as it is */
        memcpy(round->own + range.first, round->snapshot + range.first,
               range.count * sizeof(float));
        return RC_OK;
    }
    blob = round_blob_for(round, chunk);
    if (blob == NULL) return RC_NOMEM;
    CHECK(round->offer[chunk] == NULL);
    round->offer[chunk] = blob;
    return mirror_advance(round->codec, round_seed(round, DATA_OFFER, chunk),
                          round->snapshot + range.first, round->own + range.first, range.count,
                          round->scratch, blob->bytes, &blob->count);
}

void round_mirror_encode(struct round *round, struct round_job *job)
{
    bool is_new = job->replaced != round->forgotten || digest_is_equal(round->mirror_digest, none);

    job->rc = floats_are_finite(round->snapshot, round->options.values) ? RC_OK : RC_NONFINITE;
    if (job->rc != RC_OK) return;
    job->before = is_new ? none : round->mirror_digest;
    round->mirror_digest = none; /* if this fails half-way the next one is new */
    for (uint32_t chunk = 0; chunk < round->chunks && job->rc == RC_OK; chunk++) {
        struct range range = round_chunk_range(round, chunk);

        job->rc = step_chunk(round, chunk, is_new);
        round->mirror_hashes[chunk] =
            hash_wide_of(round->own + range.first, range.count * sizeof(float));
    }
    if (job->rc != RC_OK) return;
    round->mirror_digest = mirror_digest(round->mirror_hashes, round->chunks);
    job->hash = round->mirror_digest;
}

/* ---- 5, 6: all of it, to a neighbour that does not have the copy ---- */

struct blob *round_mirror_whole(struct round *round, uint32_t chunk)
{
    struct range range = round_chunk_range(round, chunk);

    if (round->phase != PHASE_RUNNING) return NULL;
    if (round->whole[chunk] != NULL) return round->whole[chunk];
    round->whole[chunk] = blob_create(range.count * sizeof(float));
    if (round->whole[chunk] == NULL) {
        round->commands.is_short_of_memory = true; /* who waits for it is told */
        return NULL;
    }
    codec_encode(CODEC_F32, round->own + range.first, range.count, round->whole[chunk]->bytes);
    return round->whole[chunk];
}

/* ---- 7, 8: the copy of a neighbour ---- */

bool round_mirror_is_size(const struct round *round, enum data_kind kind, size_t count,
                          size_t values)
{
    bool is_whole = round->ops->has_mirrors && kind == DATA_FULL;

    return codec_is_size(is_whole ? &codec_f32 : round->codec, count, values);
}

/* Into scratch: the neighbour's copy as it is now. */
void round_mirror_decode(struct round *round, struct round_job *job, struct range range)
{
    float **place = &round->mirrors[job->mirror], *mirror;

    CHECK(job->mirror < MIRRORS_MAX);
    if (*place == NULL) *place = mem_aligned(round->options.values * sizeof(float));
    if (*place == NULL) {
        job->rc = RC_NOMEM;
        return;
    }
    mirror = *place + range.first;
    if (job->chunk.kind == DATA_FULL) {
        CHECK(job->body_count == range.count * sizeof(float));
        job->rc = codec_decode(CODEC_F32, job->body, mirror, range.count);
    } else {
        job->rc = mirror_follow(round->codec, job->body, job->body_count, mirror, range.count,
                                round->scratch);
    }
    if (job->rc != RC_OK) return;
    job->hash = hash_wide_of(mirror, range.count * sizeof(float));
    memcpy(round->scratch, mirror, range.count * sizeof(float));
}
