/*
 * topk:K/4096: of each 4,096 values that follow each other the K largest, of a shorter last tile as
 * large a share. Places within a tile have 12 bits, three quarters of what topk.c needs; with
 * `topk:64/4096|int2` a value that is kept costs 14 bits, and the whole is 144 times smaller than
 * float32. After SparseLoCo (Sarfi et al. 2025, arXiv:2508.15706), whose tiles are squares of 64 x
 * 64 of a matrix: here they are runs of the vector of all parameters, which knows no matrices.
 *
 * Bytes: the places of all tiles, ascending in each, side by side: place i in bits 12 i to 12 i +
 * 11 of the bytes, the lowest first, what is left of the last one 0. Then the values there, as the
 * codec after `|` has them, float32 without one.
 */
#include "averaging/codec/blocks.h"
#include "averaging/codec/select.h"
#include "averaging/codec/sparse.h"

#include "base/check.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

enum { TILE = 4096, KEPT_MAX = TILE / 4 };

static bool tiles_parse(const char *text, struct codec_settings *settings)
{
    const char *slash = strchr(text, '/');
    char number[16];
    uint64_t kept;

    if (slash == NULL || strcmp(slash, "/4096") != 0) return false;
    if ((size_t)(slash - text) >= sizeof number) return false;
    memcpy(number, text, (size_t)(slash - text));
    number[slash - text] = '\0';
    if (!units_parse_count(number, &kept) || kept < 1 || kept > KEPT_MAX) return false;
    settings->kept = (uint32_t)kept;
    return true;
}

static void tiles_print(const struct codec_settings *settings, char *text)
{
    snprintf(text, CODEC_NAME_BYTES, "topk:%u/4096", settings->kept);
}

static struct codec_traits tiles_traits(const struct codec *self)
{
    const struct codec_traits rest = codec_rest(self).traits;
    const float share = (float)self->settings.kept / TILE;

    return (struct codec_traits){
        .is_idempotent = rest.is_lossless, /* see topk.c */
        .is_random = rest.is_random,
        .is_difference = true,
        .contraction = share * rest.contraction,
        .kept = share,
        .step = share * rest.step,
    };
}

/* Of a tile of n values. */
static size_t kept_of(const struct codec *self, size_t n)
{
    return (n * self->settings.kept + TILE - 1) / TILE;
}

static size_t kept_of_all(const struct codec *self, size_t values)
{
    return values / TILE * self->settings.kept + kept_of(self, values % TILE);
}

static size_t places_bytes(size_t k)
{
    return (12 * k + 7) / 8;
}

static void put_place(uint8_t *places, size_t i, uint16_t place)
{
    uint8_t *at = places + 3 * (i / 2);

    if (i % 2 == 0) {
        at[0] = (uint8_t)place;
        at[1] = (uint8_t)(place >> 8);
    } else {
        at[1] = (uint8_t)(at[1] | place << 4);
        at[2] = (uint8_t)(place >> 4);
    }
}

static size_t place_at(const uint8_t *places, size_t i)
{
    const uint8_t *at = places + 3 * (i / 2);

    return i % 2 == 0 ? at[0] | (at[1] & 15u) << 8 : at[1] >> 4 | (size_t)at[2] << 4;
}

static size_t tiles_bytes(const struct codec *self, size_t values)
{
    const struct codec rest = codec_rest(self);
    size_t k = kept_of_all(self, values);

    return places_bytes(k) + rest.ops->bytes_max(&rest, k);
}

static size_t tiles_encode(const struct codec *self, uint64_t seed, const float *in, size_t values,
                           uint8_t *out)
{
    const struct codec rest = codec_rest(self);
    struct sparse_values kept;
    size_t at = 0;

    CHECK(values <= CODEC_VALUES_MAX);
    for (size_t done = 0; done < values; done += TILE) {
        size_t n = values - done < TILE ? values - done : TILE, k = kept_of(self, n);
        struct selection largest = select_largest(in + done, n, k);

        at += select_places(in + done, n, largest, kept.places + at, kept.values + at);
    }
    for (size_t i = 0; i < at; i++) {
        put_place(out, i, kept.places[i]);
    }
    out += places_bytes(at);
    return places_bytes(at) + rest.ops->encode(&rest, seed, kept.values, at, out);
}

static enum rc tiles_decode(const struct codec *self, const uint8_t *in, size_t count, float *out,
                            size_t values)
{
    const struct codec rest = codec_rest(self);
    float kept[SPARSE_KEPT_MAX];
    size_t k, at = 0;
    enum rc rc;

    if (values > CODEC_VALUES_MAX || !codec_is_size(self, count, values)) return RC_FORMAT;
    k = kept_of_all(self, values);
    rc = rest.ops->decode(&rest, in + places_bytes(k), count - places_bytes(k), kept, k);
    if (rc != RC_OK) return rc;
    if (k % 2 == 1 && in[places_bytes(k) - 1] >> 4 != 0) return RC_FORMAT;
    memset(out, 0, values * sizeof *out);
    for (size_t done = 0; done < values; done += TILE) {
        size_t n = values - done < TILE ? values - done : TILE, end = at + kept_of(self, n);

        for (size_t next = 0; at < end; at++) {
            size_t place = place_at(in, at);

            if (place < next || place >= n) return RC_FORMAT;
            out[done + place] = kept[at];
            next = place + 1;
        }
    }
    return RC_OK;
}

const struct codec_ops codec_ops_tiles = {
    .word = "topk",
    .usage = "topk:SHARE, the share of the values that is kept, " SPARSE_SHARES
             ", or topk:K/4096, K from 1 to 1024 of each 4096",
    .format = CODEC_FORMATS,
    .is_sparse = true,
    .parse = tiles_parse,
    .print = tiles_print,
    .traits = tiles_traits,
    .bytes_max = tiles_bytes,
    .encode = tiles_encode,
    .decode = tiles_decode,
};
