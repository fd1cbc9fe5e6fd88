/*
 * Pad-crop and flip, the usual augmentation of small images (K. He, X. Zhang, S. Ren, J. Sun 2015,
 * arXiv:1512.03385, section 4.2). The padding is black, as it is where bytes are padded before they
 * are normalised.
 */
#include "replica/data/augment.h"

#include "base/check.h"
#include "base/rng.h"
#include "base/units.h"

#include <string.h>

enum { CROP_MAX = 64, WORD_BYTES = 32 };

#define MOVE_STREAM UINT64_C(0x6175676d656e7431) /* "augment1" */

static enum rc parse_word(const char *word, size_t column, struct augment *augment,
                          struct fault *why)
{
    uint64_t pad;

    if (strcmp(word, "flip") == 0 && !augment->flip) {
        augment->flip = true;
        return RC_OK;
    }
    if (strncmp(word, "crop:", 5) == 0 && augment->crop == 0) {
        if (!units_parse_count(word + 5, &pad) || pad == 0 || pad > CROP_MAX) {
            return fault_set(why, RC_PARSE,
                             "--augment: column %zu: crop takes 1 to %d pixels, as in crop:4",
                             column + 5, CROP_MAX);
        }
        augment->crop = (uint32_t)pad;
        return RC_OK;
    }
    return fault_set(why, RC_PARSE,
                     "--augment: column %zu: '%s' is unknown or given twice; there are crop:PIXELS "
                     "and flip",
                     column, word);
}

enum rc augment_parse(const char *text, struct augment *augment, struct fault *why)
{
    struct augment parsed = {0};
    const char *at = text == NULL ? "" : text;
    enum rc rc = RC_OK;

    while (rc == RC_OK && *(at += strspn(at, ", ")) != '\0') {
        size_t column = (size_t)(at - text) + 1, length = strcspn(at, ", ");
        char word[WORD_BYTES] = "";

        memcpy(word, at, length < sizeof word ? length : sizeof word - 1);
        rc = parse_word(word, column, &parsed, why);
        at += length;
    }
    if (rc == RC_OK) *augment = parsed;
    return rc;
}

enum rc augment_check(const struct augment *augment, const struct dataset_info *info,
                      struct fault *why)
{
    if (augment_is_empty(augment)) return RC_OK;
    if (info->input != DATA_IMAGES) {
        return fault_set(why, RC_USAGE, "--augment is for images, and %s holds none", info->name);
    }
    if (augment->crop >= info->height || augment->crop >= info->width) {
        return fault_set(why, RC_USAGE, "--augment crop:%u is too much for images of %ux%u",
                         augment->crop, info->height, info->width);
    }
    return RC_OK;
}

bool augment_is_empty(const struct augment *augment)
{
    return augment->crop == 0 && !augment->flip;
}

uint64_t augment_key(uint64_t seed, uint64_t epoch, uint64_t place)
{
    return rng_mix(rng_mix(seed ^ MOVE_STREAM, epoch), place);
}

/* to[y][x] = from[y + down][x + right], x mirrored first; what lies outside is `black`. */
struct move {
    int down, right;
    bool is_flipped;
    float black;
};

static void move_channel(const struct move *move, int height, int width, const float *from,
                         float *to)
{
    int step = move->is_flipped ? -1 : 1;

    for (int y = 0; y < height; y++, to += width) {
        int row = y + move->down;
        for (int x = 0; x < width; x++) {
            int column = (move->is_flipped ? width - 1 : 0) + step * x + move->right;
            bool is_inside = row >= 0 && row < height && column >= 0 && column < width;
            to[x] = is_inside ? from[row * width + column] : move->black;
        }
    }
}

void augment_batch(const struct augment *augment, const struct dataset_info *info,
                   const uint64_t *keys, float *image, struct batch *batch)
{
    size_t values = dataset_values(info), area = (size_t)info->height * info->width;
    int pad = (int)augment->crop;

    CHECK(info->input == DATA_IMAGES);
    for (uint32_t r = 0; r < batch->rows; r++) {
        float *to = batch->values + r * values;
        struct move move = {0};
        struct rng rng;

        rng_init(&rng, keys[r], 0);
        if (pad > 0) {
            move.down = (int)rng_below(&rng, 2 * augment->crop + 1) - pad;
            move.right = (int)rng_below(&rng, 2 * augment->crop + 1) - pad;
        }
        if (augment->flip) move.is_flipped = rng_below(&rng, 2) == 1;
        if (move.down == 0 && move.right == 0 && !move.is_flipped) continue;
        memcpy(image, to, values * sizeof *image);
        for (uint32_t c = 0; c < info->channels; c++) {
            move.black = -info->mean[c] * info->scale[c];
            move_channel(&move, (int)info->height, (int)info->width, image + c * area,
                         to + c * area);
        }
    }
}
