/* The embedded digits: unpacking, and the data source of `--data digits`. Pure; any thread. */
#include "replica/readers/digits.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/data/source.h"

#include <stdio.h>
#include <string.h>

enum { RUN_MIN = 2 };

void digits_unpack(uint8_t *values, uint8_t *labels)
{
    const char *at = digits_text;

    for (int i = 0; i < DIGITS_SAMPLES; i++) {
        uint8_t *image = values + (size_t)i * DIGITS_PIXELS;
        int filled = 0;

        CHECK(*at >= '0' && *at <= '9');
        labels[i] = (uint8_t)(*at++ - '0');
        while (filled < DIGITS_PIXELS) {
            char c = *at++;

            if (c >= 'h') {
                int run = c - 'h' + RUN_MIN;

                CHECK(c <= 'z' && filled + run <= DIGITS_PIXELS);
                memset(image + filled, 0, (size_t)run);
                filled += run;
            } else {
                CHECK((c >= '0' && c <= '9') || (c >= 'a' && c <= 'g'));
                image[filled++] = (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
            }
        }
    }
    CHECK(*at == '\0');
}

static void digits_destroy(struct data_source *source)
{
    mem_free(source);
}

static enum rc digits_load(struct data_source *source, const struct data_part *part,
                           struct samples *out, struct fault *why)
{
    uint8_t *all = mem_alloc(DIGITS_SAMPLES * (DIGITS_PIXELS + 1)); /* values, then labels */

    (void)source;
    if (all == NULL) return data_no_memory(why, "unpack digits");
    digits_unpack(all, all + DIGITS_SAMPLES * DIGITS_PIXELS);
    for (size_t i = 0, at = 0; i < DIGITS_SAMPLES && at < part->count; i++) {
        const uint8_t *image = all + i * DIGITS_PIXELS;
        uint32_t slot;

        if (data_is_test(i) != part->is_test) continue;
        slot = part->slots[at++];
        if (slot == DATA_NO_SLOT) continue;
        for (size_t k = 0; out->bytes != NULL && k < DIGITS_PIXELS; k++) { /* 0..16 onto 0..255 */
            out->bytes[slot * DIGITS_PIXELS + k] = (uint8_t)((image[k] * 255 + 8) / 16);
        }
        samples_set_label(out, slot, all[DIGITS_SAMPLES * DIGITS_PIXELS + i]);
    }
    mem_free(all);
    return RC_OK;
}

static const struct data_source_ops digits_ops = {.destroy = digits_destroy, .load = digits_load};

enum rc digits_open_source(const struct data_spec *spec, const struct dataset_options *options,
                           struct dataset_info *info, struct data_source **source,
                           struct fault *why)
{
    struct data_source *made;
    enum rc rc;

    (void)options;
    if (spec->rest != NULL) {
        return data_spec_fault(spec, strlen(spec->kind) + 1, why, "digits takes no settings");
    }
    made = mem_alloc(sizeof *made);
    if (made == NULL) return data_no_memory(why, "open the data");
    made->ops = &digits_ops;
    snprintf(info->name, sizeof info->name, "digits");
    info->has_bytes = true;
    info->channels = 1;
    info->height = info->width = DIGITS_SIDE;
    info->classes = DIGITS_CLASSES;
    data_split(info, DIGITS_SAMPLES);
    rc = data_source_normal(made, info, why);
    if (rc != RC_OK) {
        data_source_destroy(made);
        return rc;
    }
    made->normal[0] = 0.3053F;
    made->normal[1] = 1.0F / 0.3760F;
    *source = made;
    return RC_OK;
}
