/*
 * What a donor says it has: a manifest, signed by it, which must be of our model, then pages of
 * bucket hashes that must add up to the manifest's root. Nothing is loaded before that is proved.
 */
#include "peer/download/joiner_internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "gossip/signed/manifest.h"

static bool is_zero(struct digest digest)
{
    const struct digest zero = {{0}};

    return digest_is_equal(digest, zero);
}

uint32_t joiner_wanted(const struct joiner *joiner, const struct source *source)
{
    return ((joiner->options.want & 63) | 1) & ~source->left_out;
}

static size_t expected(const struct joiner *joiner, uint32_t section)
{
    return section >= SECTION_RULE ? joiner->options.rule_values : joiner->expected[section];
}

/* Sections: only such as were asked for, each once, of our sizes, and all of those there must be.
 * RC_UNSUPPORTED: all is well but what is now in left_out. */
static enum rc check_sections(const struct joiner *joiner, struct source *source,
                              const struct message_state_manifest *manifest, struct bucket_map *map)
{
    uint32_t wanted = joiner_wanted(joiner, source), seen = 0, must = 1;
    uint32_t unlike = 0;
    size_t values[STATE_SECTIONS_MAX];

    if (manifest->sections_count == 0 || manifest->sections_count > STATE_SECTIONS_MAX) {
        return RC_FORMAT;
    }
    for (uint32_t i = 0; i < manifest->sections_count; i++) {
        uint32_t bit = bucket_section_bit(manifest->sections[i]);
        bool is_moments = manifest->sections[i] == SECTION_MOMENTS;
        bool is_rule = manifest->sections[i] >= SECTION_RULE;

        if (bit == 0 || (bit & wanted) == 0 || (bit & seen) != 0) return RC_FORMAT;
        if (manifest->values[i] != expected(joiner, manifest->sections[i])) {
            if (!is_moments && !is_rule) return RC_MISMATCH;
            unlike |= bit;
        }
        /* As many values, but of another meaning. */
        if (is_moments && !digest_is_equal(manifest->moments, joiner->options.moments))
            unlike |= bit;
        if (is_rule && !digest_is_equal(manifest->rule, joiner->options.rule)) unlike |= bit;
        values[i] = expected(joiner, manifest->sections[i]);
        seen |= bit;
    }
    if ((joiner->options.want & 2) != 0 && joiner->expected[SECTION_BUFFERS] > 0) must |= 2;
    if ((joiner->options.want & 32) != 0 && joiner->expected[SECTION_INPUT] > 0) must |= 32;
    if ((seen & must) != must) return RC_FORMAT;
    source->left_out |= unlike;
    if (unlike != 0) return RC_UNSUPPORTED;
    return bucket_map_init(map, values, manifest->sections_count) ? RC_OK : RC_LIMIT;
}

static enum rc check_manifest(const struct joiner *joiner, struct source *source,
                              const struct message_state_manifest *manifest, struct bucket_map *map)
{
    uint32_t buckets;
    enum rc rc;

    if (!digest_is_equal(manifest->schema, joiner->schema)) return RC_MISMATCH;
    if (is_zero(manifest->lineage)) return RC_MISMATCH;
    if (manifest->step > UINT64_MAX / 2 || manifest->samples > UINT64_MAX / 2 ||
        manifest->updates > UINT64_MAX / 2) {
        return RC_FORMAT; /* nobody gets there honestly, and we count on from them */
    }
    if (!is_zero(joiner->lineage) && !digest_is_equal(manifest->lineage, joiner->lineage)) {
        return RC_MISMATCH;
    }
    rc = check_sections(joiner, source, manifest, map);
    if (rc != RC_OK) return rc;
    buckets = bucket_map_count(map);
    if (manifest->buckets != buckets) return RC_FORMAT;
    if (manifest->pages != (buckets + MANIFEST_HASHES_MAX - 1) / MANIFEST_HASHES_MAX) {
        return RC_FORMAT;
    }
    if (joiner->is_catching_up &&
        (map->sections != joiner->map.sections ||
         memcmp(manifest->sections, joiner->sections, map->sections) != 0)) {
        return RC_MISMATCH; /* a change of something else */
    }
    return RC_OK;
}

static void ask_page(struct source *source, uint64_t now_ns, struct outbox *out)
{
    struct message message = {.type = MESSAGE_MANIFEST_REQ};

    message.as.manifest_req.lease = source->manifest.lease;
    message.as.manifest_req.page = source->listed_count / MANIFEST_HASHES_MAX;
    outbox_add(out, source->id, &message);
    source->deadline_ns = now_ns + JOINER_LISTED_NS;
}

enum rc joiner_on_manifest(struct joiner *joiner, struct source *source,
                           const struct message_state_manifest *manifest, uint64_t now_ns,
                           struct outbox *out)
{
    struct bucket_map map;
    enum rc rc;

    if (source->state != SOURCE_ASKED) return RC_STALE;
    if (!manifest_is_signed_by(manifest, source->id, joiner->run_id)) return RC_AUTH;
    rc = check_manifest(joiner, source, manifest, &map);
    if (rc == RC_UNSUPPORTED) { /* once for each: it is not asked for any more */
        joiner_ask(joiner, source, now_ns, out);
        return RC_OK;
    }
    if (rc != RC_OK) return rc;
    CHECK(source->listed == NULL);
    source->listed = mem_array(bucket_map_count(&map), sizeof(source->listed[0]));
    if (source->listed == NULL) return RC_NOMEM;
    source->manifest = *manifest;
    source->map = map;
    source->listed_count = 0;
    hash_init(&source->root);
    source->state = SOURCE_LISTING;
    if (joiner->state == JOINER_ASKING) joiner->state = JOINER_LISTING;
    ask_page(source, now_ns, out);
    return RC_OK;
}

enum rc joiner_on_page(struct joiner *joiner, struct source *source,
                       const struct message_manifest_page *page, uint64_t now_ns,
                       struct outbox *out)
{
    uint32_t buckets = bucket_map_count(&source->map);
    uint32_t left = buckets - source->listed_count, count;

    if (source->state != SOURCE_LISTING || page->lease != source->manifest.lease) return RC_STALE;
    if (page->page != source->listed_count / MANIFEST_HASHES_MAX) return RC_STALE;
    count = left < MANIFEST_HASHES_MAX ? left : MANIFEST_HASHES_MAX;
    if (page->hashes_bytes != count * DIGEST_BYTES) return RC_FORMAT;
    memcpy(source->listed + source->listed_count, page->hashes, page->hashes_bytes);
    hash_update(&source->root, page->hashes, page->hashes_bytes);
    source->listed_count += count;
    if (source->listed_count < buckets) {
        ask_page(source, now_ns, out);
        return RC_OK;
    }
    if (!digest_is_equal(hash_final(&source->root), source->manifest.root)) return RC_AUTH;
    source->state = SOURCE_READY;
    return joiner_on_listed(joiner, source, now_ns, out);
}
