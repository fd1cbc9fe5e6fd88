/*
 * Images. PNG is libpng's work (its "simplified" interface), and this is libpng's one home:
 * values are those stored, 16 bits scaled to 8, whatever the file says of gamma and colours, and
 * what is transparent is blended on black. The Netpbm forms P5 and P6
 * (https://netpbm.sourceforge.net/doc/ppm.html) are read here, with up to 255 levels. Commands.
 */
#include "replica/readers/image_file.h"

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"

#include <string.h>
#include <strings.h>

#ifdef GRAPEVINE_HAS_PNG
#include <png.h>
#endif

static const char forms[] = "PNG, or PGM and PPM of the binary kind (P5, P6)";

bool image_is_path(const char *path)
{
    static const char *const endings[] = {".png",  ".pgm", ".ppm", ".pnm", ".jpg",
                                          ".jpeg", ".gif", ".bmp", ".webp"};
    const char *dot = strrchr(path, '.');

    for (size_t i = 0; dot != NULL && i < ARRAY_COUNT(endings); i++) {
        if (strcasecmp(dot, endings[i]) == 0) return true;
    }
    return false;
}

void image_deinit(struct image *image)
{
    mem_free(image->bytes);
    *image = (struct image){0};
}

static size_t bytes_of(const struct image *image)
{
    return (size_t)image->height * image->width * image->channels;
}

static enum rc take_room(const char *path, struct image *image, struct fault *why)
{
    uint64_t pixels = (uint64_t)image->height * image->width;

    if (pixels == 0 || image->height > IMAGE_SIDE_MAX || image->width > IMAGE_SIDE_MAX ||
        pixels > IMAGE_PIXELS_MAX) {
        return fault_set(why, RC_LIMIT, "cannot read %s: %ux%u pixels are more than %d, or none",
                         path, image->width, image->height, IMAGE_PIXELS_MAX);
    }
    image->bytes = mem_raw(bytes_of(image));
    if (image->bytes == NULL)
        return fault_set(why, RC_NOMEM, "cannot read %s: out of memory", path);
    return RC_OK;
}

/* ---- PNG ---- */

#ifdef GRAPEVINE_HAS_PNG
enum { SIGNATURE_BYTES = 8, CHUNK_BYTES = 12 }; /* length, name and checksum of a chunk */

/* What a file says about colours would have libpng convert its values; they are wanted as stored,
 * as data sets have them. Copies all but those chunks into `to`, of `count` bytes; returns how
 * many. */
static size_t leave_out_colour(const uint8_t *bytes, size_t count, uint8_t *to)
{
    static const char names[][5] = {"gAMA", "cHRM", "sRGB", "iCCP", "cICP"};
    size_t at = SIGNATURE_BYTES, used = SIGNATURE_BYTES;

    memcpy(to, bytes, SIGNATURE_BYTES);
    while (count - at >= CHUNK_BYTES) {
        const size_t body = (size_t)bytes[at] << 24 | (size_t)bytes[at + 1] << 16 |
                            (size_t)bytes[at + 2] << 8 | bytes[at + 3];
        bool is_wanted = true;

        if (body > count - at - CHUNK_BYTES) break;
        for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
            is_wanted = is_wanted && memcmp(bytes + at + 4, names[i], 4) != 0;
        }
        if (is_wanted) {
            memcpy(to + used, bytes + at, body + CHUNK_BYTES);
            used += body + CHUNK_BYTES;
        }
        at += body + CHUNK_BYTES;
    }
    memcpy(to + used, bytes + at, count - at); /* damaged: libpng says how */
    return used + count - at;
}

/* On black, in stored values. */
static void blend(const uint8_t *from, size_t pixels, uint32_t channels, uint8_t *to)
{
    for (size_t i = 0; i < pixels; i++, from += channels + 1) {
        for (uint32_t c = 0; c < channels; c++) {
            *to++ = (uint8_t)((from[c] * from[channels] + UINT8_MAX / 2) / UINT8_MAX);
        }
    }
}

/* `png` has begun to read. */
static enum rc finish_png(const char *path, png_image *png, struct image *image, struct fault *why)
{
    const bool has_colour = (png->format & PNG_FORMAT_FLAG_COLOR) != 0;
    const bool has_alpha = (png->format & PNG_FORMAT_FLAG_ALPHA) != 0;
    const size_t pixels = (size_t)png->height * png->width;
    uint8_t *blended = NULL;
    enum rc rc;

    *image = (struct image){has_colour ? 3 : 1, png->height, png->width, NULL};
    rc = take_room(path, image, why);
    if (rc != RC_OK) return rc;
    png->format = has_colour ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
    png->flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* 16 bits are no linear light either */
    if (has_alpha) {
        png->format |= PNG_FORMAT_FLAG_ALPHA;
        blended = mem_raw(pixels * (image->channels + 1));
        if (blended == NULL) {
            return fault_set(why, RC_NOMEM, "cannot read %s: out of memory", path);
        }
    }
    if (png_image_finish_read(png, NULL, has_alpha ? blended : image->bytes, 0, NULL) == 0) {
        rc =
            fault_set(why, RC_FORMAT, "cannot read %s: the PNG is damaged: %s", path, png->message);
    } else if (has_alpha) {
        blend(blended, pixels, image->channels, image->bytes);
    }
    mem_free(blended);
    return rc;
}

static enum rc read_png(const char *path, const uint8_t *bytes, size_t count, struct image *image,
                        struct fault *why)
{
    png_image png = {.version = PNG_IMAGE_VERSION};
    uint8_t *plain = mem_raw(count);
    enum rc rc;

    if (plain == NULL) return fault_set(why, RC_NOMEM, "cannot read %s: out of memory", path);
    if (png_image_begin_read_from_memory(&png, plain, leave_out_colour(bytes, count, plain)) != 0) {
        rc = finish_png(path, &png, image, why);
    } else {
        rc = fault_set(why, RC_FORMAT, "cannot read %s: the PNG is damaged: %s", path, png.message);
    }
    png_image_free(&png);
    mem_free(plain);
    return rc;
}
#else
static enum rc read_png(const char *path, const uint8_t *bytes, size_t count, struct image *image,
                        struct fault *why)
{
    (void)bytes;
    (void)count;
    (void)image;
    return fault_set(why, RC_UNSUPPORTED,
                     "cannot read %s: this program was built without libpng; make it a PGM or PPM",
                     path);
}
#endif

/* ---- PGM, PPM ---- */

/* A number of the header, behind blanks and comments. */
static bool take_number(const uint8_t **at, const uint8_t *end, uint32_t *number)
{
    uint32_t value = 0;
    bool has_digits = false;

    while (*at < end && (strchr(" \t\r\n", **at) != NULL || **at == '#')) {
        if (**at == '#') {
            while (*at < end && **at != '\n') {
                ++*at;
            }
        } else {
            ++*at;
        }
    }
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at) {
        value = value * 10 + (uint32_t)(**at - '0');
        has_digits = true;
        if (value > 1u << 20) return false;
    }
    *number = value;
    return has_digits;
}

static enum rc read_netpbm(const char *path, const uint8_t *bytes, size_t count,
                           struct image *image, struct fault *why)
{
    const uint8_t *at = bytes + 2, *end = bytes + count;
    uint32_t most = 0;
    enum rc rc;

    image->channels = bytes[1] == '6' ? 3 : 1;
    if (!take_number(&at, end, &image->width) || !take_number(&at, end, &image->height) ||
        !take_number(&at, end, &most) || at == end) {
        return fault_set(why, RC_FORMAT, "cannot read %s: its header is damaged", path);
    }
    at++; /* one blank */
    if (most == 0 || most > UINT8_MAX) {
        return fault_set(why, RC_FORMAT, "cannot read %s: it has %u levels; up to 255 can be read",
                         path, most);
    }
    if ((uint64_t)image->height * image->width * image->channels > (uint64_t)(end - at)) {
        return fault_set(why, RC_FORMAT, "cannot read %s: the file is too short for %ux%u pixels",
                         path, image->width, image->height);
    }
    rc = take_room(path, image, why);
    for (size_t i = 0; rc == RC_OK && i < bytes_of(image); i++) {
        image->bytes[i] = (uint8_t)(at[i] >= most ? UINT8_MAX : at[i] * UINT8_MAX / most);
    }
    return rc;
}

enum rc image_decode(const char *name, const uint8_t *bytes, size_t count, struct image *image,
                     struct fault *why)
{
    static const uint8_t png[] = {0x89, 'P', 'N', 'G'};
    struct image read = {0};
    enum rc rc;

    if (count >= 8 && memcmp(bytes, png, sizeof png) == 0) {
        rc = read_png(name, bytes, count, &read, why);
    } else if (count > 2 && (memcmp(bytes, "P5", 2) == 0 || memcmp(bytes, "P6", 2) == 0)) {
        rc = read_netpbm(name, bytes, count, &read, why);
    } else {
        rc = fault_set(why, RC_FORMAT, "cannot read %s: it is no image of a known kind: %s", name,
                       forms);
    }
    if (rc == RC_OK)
        *image = read;
    else
        image_deinit(&read);
    return rc;
}

enum rc image_read(const char *path, struct image *image, struct fault *why)
{
    void *bytes;
    size_t count;
    enum rc rc = file_read(path, IMAGE_FILE_BYTES_MAX, &bytes, &count, why);

    if (rc != RC_OK) return rc;
    rc = image_decode(path, bytes, count, image, why);
    mem_free(bytes);
    return rc;
}

void image_values(const struct image *image, uint32_t channels, float *values)
{
    size_t pixels = (size_t)image->height * image->width;

    CHECK(channels == 1 || channels == 3);
    for (size_t i = 0; i < pixels; i++) {
        const uint8_t *pixel = image->bytes + i * image->channels;
        if (channels == 1 && image->channels == 3) {
            float luma = 0.299F * pixel[0] + 0.587F * pixel[1] + 0.114F * pixel[2];
            values[i] = luma / 255.0F;
            continue;
        }
        for (uint32_t c = 0; c < channels; c++) {
            values[c * pixels + i] = (float)pixel[image->channels == 3 ? c : 0] / 255.0F;
        }
    }
}
