/* Masks; see mask.h. */
#include "averaging/codec/mask.h"

#include "averaging/codec/codec.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "gossip/wire/limits.h"

#include <string.h>

struct piece {
    size_t first, count;
    uint32_t part; /* of a fragment; else a bit: the parts in whose numbers it is set; 0: all */
};

struct masks {
    size_t values, parameters;
    uint32_t fragments, slots, chunks;
    uint32_t periods[MASK_TAILS_MAX], tails;
    uint64_t seed;
    size_t largest;
    struct piece *pieces; /* [pieces_count] ascending; slots have none */
    size_t pieces_count;
    uint32_t parts;         /* fragments; 1 of slots; of tails a bit each, which of them it holds */
    size_t *sizes, *models; /* [parts] where there are pieces: values, and parameters among them */
    uint32_t
        *steps; /* [steps_count]: numbers below `slots` that have no divisor in common with it */
    uint32_t steps_count;
};

/* ---- how the plane is divided ---- */

static size_t blocks_of(const struct masks *masks)
{
    return (masks->parameters + masks->slots - 1) / masks->slots;
}

static size_t rest_of(const struct masks *masks)
{
    return masks->values - masks->parameters;
}

static uint32_t smallest(const struct masks *masks)
{
    uint32_t part = 0;

    for (uint32_t i = 1; i < masks->fragments; i++) {
        if (masks->sizes[i] < masks->sizes[part]) part = i;
    }
    return part;
}

/* [first, first + count), in pieces of at most `most`, to whoever has the least. */
static void add_pieces(struct masks *masks, size_t first, size_t count, size_t most)
{
    while (count > 0) {
        size_t n = count < most ? count : most;
        uint32_t part = smallest(masks);

        masks->pieces[masks->pieces_count++] =
            (struct piece){.first = first, .count = n, .part = part};
        masks->sizes[part] += n;
        if (first < masks->parameters) masks->models[part] += n;
        first += n;
        count -= n;
    }
}

static bool make_pieces(struct masks *masks, size_t pieces)
{
    masks->pieces = mem_array(pieces, sizeof *masks->pieces);
    masks->sizes = mem_array(masks->parts, sizeof *masks->sizes);
    masks->models = mem_array(masks->parts, sizeof *masks->models);
    return masks->pieces != NULL && masks->sizes != NULL && masks->models != NULL;
}

static void find_largest(struct masks *masks)
{
    for (uint32_t i = 0; i < masks->parts; i++) {
        if (masks->sizes[i] > masks->largest) masks->largest = masks->sizes[i];
    }
}

static bool make_fragments(struct masks *masks, const struct masks_options *options)
{
    size_t most = (options->values + options->fragments - 1) / options->fragments, first = 0;
    /* Cutting makes at most one piece more for each whole fragment. */
    size_t pieces = options->ends_count + options->fragments + 1;

    masks->parts = options->fragments;
    if (!make_pieces(masks, pieces)) return false;
    for (size_t i = 0; i < options->ends_count; i++) {
        CHECK(options->ends[i] >= first && options->ends[i] <= options->parameters);
        add_pieces(masks, first, options->ends[i] - first, most);
        first = options->ends[i];
    }
    CHECK(first == options->parameters);
    if (rest_of(masks) > 0) add_pieces(masks, first, rest_of(masks), rest_of(masks));
    CHECK(masks->pieces_count <= pieces);
    find_largest(masks);
    return true;
}

static bool make_tails(struct masks *masks, const struct masks_options *options)
{
    size_t first = options->values;

    masks->tails = options->tails_count;
    masks->parts = 1u << masks->tails;
    if (!make_pieces(masks, masks->tails + 1)) return false;
    for (uint32_t i = 0; i < masks->tails; i++) {
        CHECK(options->tails[i].period > 0 && options->tails[i].count <= first);
        first -= options->tails[i].count;
    }
    CHECK(first >= options->parameters);
    masks->pieces[masks->pieces_count++] = (struct piece){.count = first};
    for (uint32_t i = 0; i < masks->tails; i++) {
        masks->periods[i] = options->tails[i].period;
        masks->pieces[masks->pieces_count++] =
            (struct piece){.first = first, .count = options->tails[i].count, .part = 1u << i};
        first += options->tails[i].count;
    }
    for (uint32_t part = 0; part < masks->parts; part++) {
        masks->models[part] = options->parameters;
        for (size_t i = 0; i < masks->pieces_count; i++) {
            const struct piece *piece = &masks->pieces[i];

            if ((piece->part & ~part) == 0) masks->sizes[part] += piece->count;
        }
    }
    find_largest(masks);
    return true;
}

static uint32_t divisor(uint32_t a, uint32_t b)
{
    while (b != 0) {
        uint32_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

static bool make_slots(struct masks *masks)
{
    masks->steps = mem_array(masks->slots, sizeof *masks->steps);
    if (masks->steps == NULL) return false;
    for (uint32_t i = 1; i <= masks->slots; i++) {
        if (divisor(masks->slots, i) == 1) masks->steps[masks->steps_count++] = i;
    }
    masks->largest = blocks_of(masks) + rest_of(masks);
    return true;
}

static bool make(struct masks *masks, const struct masks_options *options)
{
    if (options->fragments > 0) return make_fragments(masks, options);
    return options->slots > 0 ? make_slots(masks) : make_tails(masks, options);
}

struct masks *masks_create(const struct masks_options *options)
{
    struct masks *masks = mem_alloc(sizeof *masks);

    if (masks == NULL) return NULL;
    CHECK(options->values > 0 && options->parameters <= options->values);
    CHECK(options->parameters > 0);
    CHECK((options->fragments > 0) + (options->slots > 0) + (options->tails_count > 0) == 1);
    CHECK(options->slots <= MASK_SLOTS_MAX && options->fragments <= MASK_FRAGMENTS_MAX);
    CHECK(options->tails_count <= MASK_TAILS_MAX);
    masks->values = options->values;
    masks->parameters = options->parameters;
    masks->fragments = options->fragments;
    masks->slots = options->slots;
    masks->seed = options->seed;
    masks->parts = 1;
    if (!make(masks, options)) {
        masks_destroy(masks);
        return NULL;
    }
    masks->chunks = (uint32_t)((masks->largest + CHUNK_VALUES - 1) / CHUNK_VALUES);
    return masks;
}

void masks_destroy(struct masks *masks)
{
    if (masks == NULL) return;
    mem_free(masks->pieces);
    mem_free(masks->sizes);
    mem_free(masks->models);
    mem_free(masks->steps);
    mem_free(masks);
}

struct mask masks_of(const struct masks *masks, uint64_t origin, uint64_t number)
{
    uint64_t seed = rng_mix(masks->seed, origin);

    if (masks->fragments > 0) {
        return (struct mask){.part = (uint32_t)(number % masks->fragments)};
    }
    if (masks->tails > 0) {
        struct mask mask = {0};

        for (uint32_t i = 0; i < masks->tails; i++) {
            if (number % masks->periods[i] == 0) mask.part |= 1u << i;
        }
        return mask;
    }
    return (struct mask){.slot = (uint32_t)(number % masks->slots),
                         .seed = rng_mix(seed, number / masks->slots)};
}

uint32_t masks_parts(const struct masks *masks)
{
    return masks->parts;
}

uint32_t masks_chunks(const struct masks *masks)
{
    return masks->chunks;
}

/* ---- the values of one round ---- */

static bool has_rest(const struct masks *masks, struct mask mask)
{
    return mask.seed % masks->slots == mask.slot;
}

static size_t carried(const struct masks *masks, struct mask mask)
{
    if (masks->slots == 0) return masks->sizes[mask.part];
    return blocks_of(masks) + (has_rest(masks, mask) ? rest_of(masks) : 0);
}

/* No chunk is empty: the last one begins before the end. */
struct mask_layout masks_layout(const struct masks *masks, struct mask mask)
{
    struct mask_layout layout = {.values = carried(masks, mask), .chunk_values = CHUNK_VALUES};
    size_t each = (layout.values + masks->chunks - 1) / masks->chunks, least;

    layout.parameters = masks->slots == 0 ? masks->models[mask.part] : blocks_of(masks);
    if (masks->chunks > 1) {
        layout.chunk_values = (each + CODEC_BLOCK - 1) / CODEC_BLOCK * CODEC_BLOCK;
        if (layout.chunk_values == 0) layout.chunk_values = CODEC_BLOCK;
    }
    CHECK(layout.chunk_values <= CHUNK_VALUES);
    least = (masks->chunks - 1) * layout.chunk_values + 1;
    if (layout.values < least) layout.values = least;
    return layout;
}

size_t masks_values(const struct masks *masks)
{
    size_t most = masks->largest;

    for (uint32_t i = 0; i < masks_parts(masks); i++) {
        /* of slots: one with the rest, and one without */
        size_t values = masks_layout(masks, (struct mask){.part = i}).values;
        size_t others = masks_layout(masks, (struct mask){.part = i, .slot = 1}).values;

        if (others > values) values = others;
        if (values > most) most = values;
    }
    return most;
}

/* Goes through the values of a mask in the order in which they lie in the plane. */
struct walk {
    const struct masks *masks;
    struct mask mask;
    size_t next;         /* piece, or block; past the blocks the rest */
    size_t first, count; /* what was found in the whole */
    size_t at;           /* where it lies in the plane */
    size_t passed;       /* the plane up to its end */
};

/* Where block `block` has the value of this slot. */
static size_t place_in(const struct masks *masks, struct mask mask, size_t block)
{
    uint64_t draw = rng_mix(mask.seed, block);
    uint64_t step = masks->steps[(draw & UINT32_MAX) % masks->steps_count];

    return block * masks->slots +
           (size_t)((step * mask.slot + (draw >> 32) % masks->slots) % masks->slots);
}

static void found(struct walk *walk, size_t first, size_t count)
{
    walk->first = first;
    walk->count = count;
    walk->at = walk->passed;
    walk->passed += count;
}

static bool holds(const struct masks *masks, const struct piece *piece, struct mask mask)
{
    return masks->fragments > 0 ? piece->part == mask.part : (piece->part & ~mask.part) == 0;
}

static bool next_piece(struct walk *walk)
{
    const struct masks *masks = walk->masks;

    while (walk->next < masks->pieces_count) {
        const struct piece *piece = &masks->pieces[walk->next++];

        if (!holds(masks, piece, walk->mask)) continue;
        found(walk, piece->first, piece->count);
        return true;
    }
    return false;
}

static bool next_value(struct walk *walk)
{
    const struct masks *masks = walk->masks;
    size_t blocks = blocks_of(masks);

    while (walk->next < blocks) {
        size_t place = place_in(masks, walk->mask, walk->next++);

        if (place < masks->parameters) {
            found(walk, place, 1);
            return true;
        }
        walk->passed++; /* the last block is shorter: a zero in its place */
    }
    if (walk->next > blocks || rest_of(masks) == 0 || !has_rest(masks, walk->mask)) return false;
    walk->next++;
    found(walk, masks->parameters, rest_of(masks));
    return true;
}

static bool walk_on(struct walk *walk)
{
    return walk->masks->slots == 0 ? next_piece(walk) : next_value(walk);
}

void masks_gather(const struct masks *masks, struct mask mask, const float *front, size_t count,
                  const float *behind, float *plane)
{
    struct walk walk = {.masks = masks, .mask = mask};
    size_t filled = 0, values = masks_layout(masks, mask).values;

    while (walk_on(&walk)) {
        size_t in_front = walk.first >= count ? 0 : count - walk.first;

        if (in_front > walk.count) in_front = walk.count;
        if (walk.at > filled) memset(plane + filled, 0, (walk.at - filled) * sizeof(float));
        if (in_front > 0) memcpy(plane + walk.at, front + walk.first, in_front * sizeof(float));
        if (in_front < walk.count) {
            memcpy(plane + walk.at + in_front, behind + walk.first + in_front,
                   (walk.count - in_front) * sizeof(float));
        }
        filled = walk.passed;
    }
    memset(plane + filled, 0, (values - filled) * sizeof(float));
}

void masks_scatter(const struct masks *masks, struct mask mask, const float *plane, float *whole)
{
    struct walk walk = {.masks = masks, .mask = mask};

    while (walk_on(&walk)) {
        memcpy(whole + walk.first, plane + walk.at, walk.count * sizeof(float));
    }
}

void masks_fill(const struct masks *masks, struct mask mask, float value, float *whole)
{
    struct walk walk = {.masks = masks, .mask = mask};

    while (walk_on(&walk)) {
        for (size_t i = 0; i < walk.count; i++) {
            whole[walk.first + i] = value;
        }
    }
}
