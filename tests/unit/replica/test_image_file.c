/* Images: Netpbm of the binary kind and PNG, as values from 0 to 1; damage is refused. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/readers/image_file.h"
#include "tests/scratch.h"

/* 2 x 1, grey 0 and 200; and opaque red beside something transparent. */
static const uint8_t png_grey[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
    0x44, 0x52, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00,
    0x00, 0xd1, 0x49, 0x20, 0x56, 0x00, 0x00, 0x00, 0x0b, 0x49, 0x44, 0x41, 0x54, 0x78,
    0x9c, 0x63, 0x60, 0x38, 0x01, 0x00, 0x00, 0xcb, 0x00, 0xc9, 0x69, 0xc8, 0xc3, 0x6c,
    0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
};

static const uint8_t png_rgba[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44,
    0x52, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x01, 0x08, 0x06, 0x00, 0x00, 0x00, 0xf4,
    0x22, 0x7f, 0x8a, 0x00, 0x00, 0x00, 0x11, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0xf8,
    0xcf, 0xc0, 0xf0, 0x9f, 0x4b, 0x44, 0x8e, 0x01, 0x00, 0x0d, 0x9c, 0x02, 0x3b, 0x53, 0x85,
    0x3e, 0x2e, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
};

/* Stored 10, 64, 128, 200: in 16 bits; and in 8, said to be linear light (gAMA 1.0). */
static const uint8_t png_16[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44,
    0x52, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x01, 0x10, 0x00, 0x00, 0x00, 0x00, 0x8c,
    0xc7, 0x8c, 0x52, 0x00, 0x00, 0x00, 0x11, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x63, 0xe0,
    0xe2, 0x72, 0x70, 0x68, 0x68, 0x38, 0x71, 0x02, 0x00, 0x09, 0x37, 0x03, 0x25, 0x7f, 0x0d,
    0xe6, 0x36, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
};

static const uint8_t png_linear[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44,
    0x52, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00, 0x00, 0xdc,
    0x57, 0x50, 0x11, 0x00, 0x00, 0x00, 0x04, 0x67, 0x41, 0x4d, 0x41, 0x00, 0x01, 0x86, 0xa0,
    0x31, 0xe8, 0x96, 0x5f, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x63,
    0xe0, 0x72, 0x68, 0x38, 0x01, 0x00, 0x02, 0xb5, 0x01, 0x93, 0x7e, 0x55, 0xae, 0xd4, 0x00,
    0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
};

/* 16 bits, 200 100 50 half transparent, and 1 2 3 that is not. */
static const uint8_t png_rgba_16[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
    0x44, 0x52, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x01, 0x10, 0x06, 0x00, 0x00,
    0x00, 0xa4, 0xb2, 0xa3, 0xc9, 0x00, 0x00, 0x00, 0x04, 0x67, 0x41, 0x4d, 0x41, 0x00,
    0x00, 0xb1, 0x8f, 0x0b, 0xfc, 0x61, 0x05, 0x00, 0x00, 0x00, 0x19, 0x49, 0x44, 0x41,
    0x54, 0x78, 0xda, 0x63, 0x38, 0x71, 0x22, 0x25, 0xc5, 0xc8, 0xa8, 0xa1, 0x81, 0x91,
    0x91, 0x89, 0x89, 0x99, 0xf9, 0xff, 0x7f, 0x00, 0x34, 0x0a, 0x05, 0xc7, 0xc1, 0x5e,
    0xa7, 0xff, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
};

static enum rc decode(const void *bytes, size_t count, struct image *image, struct fault *why)
{
    memset(image, 0, sizeof *image);
    return image_decode("x", bytes, count, image, why);
}

static void a_binary_pgm_is_grey_from_0_to_1(void **state)
{
    /* Comments and blanks in the header; fewer levels are stretched. */
    static const char text[] = "P5 # grey\n3 # wide\n1\n100\n\0\x32\x64";
    struct image image;
    struct fault why = {""};
    float values[9];

    (void)state;
    assert_int_equal(decode(text, sizeof text - 1, &image, &why), RC_OK);
    assert_int_equal(image.channels, 1);
    assert_int_equal(image.width, 3);
    assert_int_equal(image.height, 1);
    image_values(&image, 1, values);
    assert_float_equal(values[0], 0.0F, 0);
    assert_float_equal(values[1], 127.0F / 255.0F, 1e-6F);
    assert_float_equal(values[2], 1.0F, 0);
    image_values(&image, 3, values);
    assert_float_equal(values[2], 1.0F, 0);
    assert_float_equal(values[5], 1.0F, 0);
    assert_float_equal(values[7], 127.0F / 255.0F, 1e-6F);
    image_deinit(&image);
}

static void colours_become_planes_or_luma(void **state)
{
    /* Red, green and blue planes one after another; 0.299, 0.587, 0.114 of them as grey. */
    static const char text[] = "P6\n2 1\n255\n\xff\0\0\0\xff\0";
    struct image image;
    struct fault why = {""};
    float values[6];

    (void)state;
    assert_int_equal(decode(text, sizeof text - 1, &image, &why), RC_OK);
    assert_int_equal(image.channels, 3);
    image_values(&image, 3, values);
    assert_float_equal(values[0], 1.0F, 0);
    assert_float_equal(values[1], 0.0F, 0);
    assert_float_equal(values[2], 0.0F, 0);
    assert_float_equal(values[3], 1.0F, 0);
    image_values(&image, 1, values);
    assert_float_equal(values[0], 0.299F, 1e-6F);
    assert_float_equal(values[1], 0.587F, 1e-6F);
    image_deinit(&image);
}

static void damage_is_refused(void **state)
{
    /* Headers without end, sizes beyond the file or all bounds, other kinds of files. */
    static const struct {
        const char *bytes;
        size_t count;
        enum rc rc;
    } rows[] = {
        {"", 0, RC_FORMAT},
        {"P5", 2, RC_FORMAT},
        {"P5 ", 3, RC_FORMAT},
        {"P5\n2 2\n255", 10, RC_FORMAT},
        {"P5\n2 2\n255\nabc", 14, RC_FORMAT},
        {"P5\n2 2\n65535\nabcdabcd", 21, RC_FORMAT},
        {"P5\n0 2\n255\nabcd", 15, RC_LIMIT},
        {"P5\n999999999 9\n255\nabcd", 23, RC_FORMAT},
        {"P6\n1000000 1000000\n255\nabcd", 27, RC_FORMAT},
        {"P5\n-2 2\n255\nabcd", 16, RC_FORMAT},
        {"P2\n1 1\n255\n7", 12, RC_FORMAT},
        {"\xff\xd8\xff\xe0 JFIF", 9, RC_FORMAT},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct image image;
        struct fault why = {""};
        assert_int_equal(decode(rows[i].bytes, rows[i].count, &image, &why), rows[i].rc);
        assert_int_not_equal(why.text[0], '\0');
        assert_null(image.bytes);
    }
}

static void a_file_that_is_not_there_is_told(void **state)
{
    /* Read by its path: missing, and there. */
    struct scratch scratch;
    struct image image = {0};
    struct fault why = {""};

    (void)state;
    scratch_init(&scratch);
    assert_int_equal(image_read(scratch_path(&scratch, "none.png"), &image, &why), RC_NOT_FOUND);
    assert_non_null(strstr(why.text, "none.png"));
    scratch_write(&scratch, "x.pgm", "P5 1 1 255 \x40", 12);
    mem_fail_after(1); /* the file is read, the picture finds no room */
    assert_int_equal(image_read(scratch_path(&scratch, "x.pgm"), &image, &why), RC_NOMEM);
    mem_fail_after(UINT64_MAX);
    assert_int_equal(image_read(scratch_path(&scratch, "x.pgm"), &image, &why), RC_OK);
    assert_int_equal(image.bytes[0], 0x40);
    image_deinit(&image);
    scratch_deinit(&scratch);
}

static void a_png_is_grey_or_colour_as_it_says(void **state)
{
    /* Grey stays as it is to the level; what is transparent is black. */
    struct image image;
    struct fault why = {""};
    enum rc rc = decode(png_grey, sizeof png_grey, &image, &why);

    (void)state;
    if (rc == RC_UNSUPPORTED) {
        assert_non_null(strstr(why.text, "libpng"));
        return;
    }
    assert_int_equal(rc, RC_OK);
    assert_int_equal(image.channels, 1);
    assert_int_equal(image.width, 2);
    assert_int_equal(image.bytes[0], 0);
    assert_int_equal(image.bytes[1], 200);
    image_deinit(&image);
    assert_int_equal(decode(png_rgba, sizeof png_rgba, &image, &why), RC_OK);
    assert_int_equal(image.channels, 3);
    assert_memory_equal(image.bytes, "\xff\0\0\0\0\0", 6);
    image_deinit(&image);
}

static void values_of_a_png_are_those_stored(void **state)
{
    /* As data sets have them, whatever is said of gamma, in 8 bits and in 16; alpha blends on black
     * in stored values. */
    static const uint8_t stored[] = {10, 64, 128, 200};
    struct image image;
    struct fault why = {""};

    (void)state;
    if (decode(png_16, sizeof png_16, &image, &why) == RC_UNSUPPORTED) return;
    assert_int_equal(image.channels, 1);
    assert_memory_equal(image.bytes, stored, sizeof stored);
    image_deinit(&image);
    assert_int_equal(decode(png_linear, sizeof png_linear, &image, &why), RC_OK);
    assert_memory_equal(image.bytes, stored, sizeof stored);
    image_deinit(&image);
    assert_int_equal(decode(png_rgba_16, sizeof png_rgba_16, &image, &why), RC_OK);
    assert_int_equal(image.channels, 3);
    assert_memory_equal(image.bytes, "\x64\x32\x19\x01\x02\x03", 6);
    image_deinit(&image);
    for (uint64_t n = 0; n < 3; n++) {
        mem_fail_after(n);
        assert_int_equal(decode(png_rgba_16, sizeof png_rgba_16, &image, &why), RC_NOMEM);
        mem_fail_after(UINT64_MAX);
        assert_null(image.bytes);
    }
}

static void a_damaged_png_is_refused(void **state)
{
    /* Cut anywhere: RC_FORMAT, or what is left is enough for the picture. */
    (void)state;
    for (size_t count = 5; count < sizeof png_rgba; count++) {
        struct image image;
        struct fault why = {""};
        enum rc rc = decode(png_rgba, count, &image, &why);
        assert_true(rc == RC_OK || rc == RC_FORMAT || rc == RC_UNSUPPORTED);
        assert_true(count > 40 || rc != RC_OK);
        image_deinit(&image);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_binary_pgm_is_grey_from_0_to_1),
        cmocka_unit_test(colours_become_planes_or_luma),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(a_file_that_is_not_there_is_told),
        cmocka_unit_test(a_png_is_grey_or_colour_as_it_says),
        cmocka_unit_test(values_of_a_png_are_those_stored),
        cmocka_unit_test(a_damaged_png_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
