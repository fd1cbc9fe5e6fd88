/* Data sets: the embedded one, Debian's, and hostile files. */
#include "tests/scratch.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "replica/data/dataset.h"
#include "replica/readers/digits.h"
#include "replica/readers/idx.h"

enum { TRAIN = 600, TEST = 40, SIDE = 3, PIXELS = SIDE * SIDE };

static void put_be32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        to[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

/* One of the four files, described so that a test can lie in one place. */
struct idx_example {
    const char *name;
    uint32_t magic, count, height, width; /* as the header claims */
    size_t values;                        /* bytes that follow */
    bool is_labels;
};

/* Image i is filled with i % 251, its label is i % 10. */
static void write_example(struct scratch *scratch, const struct idx_example *example)
{
    size_t header = example->is_labels ? 8 : 16;
    uint8_t *bytes = calloc(1, header + example->values + 1);

    put_be32(bytes, example->magic);
    put_be32(bytes + 4, example->count);
    if (!example->is_labels) {
        put_be32(bytes + 8, example->height);
        put_be32(bytes + 12, example->width);
    }
    for (size_t i = 0; i < example->values; i++) {
        bytes[header + i] = (uint8_t)(example->is_labels ? i % 10 : i / PIXELS % 251);
    }
    scratch_write(scratch, example->name, bytes, header + example->values);
    free(bytes);
}

static const struct idx_example sound[IDX_FILES] = {
    {"train-images-idx3-ubyte", 0x803, TRAIN, SIDE, SIDE, TRAIN *PIXELS, false},
    {"train-labels-idx1-ubyte", 0x801, TRAIN, 0, 0, TRAIN, true},
    {"t10k-images-idx3-ubyte", 0x803, TEST, SIDE, SIDE, TEST *PIXELS, false},
    {"t10k-labels-idx1-ubyte", 0x801, TEST, 0, 0, TEST, true},
};

static void write_sound(struct scratch *scratch)
{
    for (int i = 0; i < IDX_FILES; i++) {
        write_example(scratch, &sound[i]);
    }
}

static void compress(struct scratch *scratch, const char *name)
{
    char command[400];

    snprintf(command, sizeof command, "gzip -f '%s'", scratch_path(scratch, name));
    assert_int_equal(system(command), 0);
}

static enum rc open_folder(struct scratch *scratch, struct dataset **dataset, struct fault *why)
{
    char spec[128];

    snprintf(spec, sizeof spec, "idx:%s", scratch->folder);
    return dataset_open(spec, &(struct dataset_options){.seed = 1}, dataset, why);
}

/* The embedded digits are the 1,797 that scikit-learn ships, to the bit. */
static void the_digits_are_the_known_ones(void **state)
{
    uint8_t *all = calloc(DIGITS_SAMPLES, DIGITS_PIXELS + 1);
    char text[DIGEST_TEXT];

    (void)state;
    digits_unpack(all, all + DIGITS_SAMPLES * DIGITS_PIXELS);
    digest_format(hash_of(all, DIGITS_SAMPLES * (DIGITS_PIXELS + 1)), text);
    assert_string_equal(text, "f5063ec79c8ca418d6aeba1e6f00271186eabaf012c88c5b233d1240e1877951");
    free(all);
}

/* Every fifth digit is for testing, the others for training, and bytes span the whole range. */
static void digits_are_split_one_in_five(void **state)
{
    uint8_t *all = calloc(DIGITS_SAMPLES, DIGITS_PIXELS + 1), *labels;
    bool wanted[2 * DATASET_SMALL_BLOCKS];
    struct samples train = {0}, test = {0};
    struct dataset *dataset;
    uint32_t *train_labels = NULL;
    uint8_t highest = 0;

    (void)state;
    labels = all + DIGITS_SAMPLES * DIGITS_PIXELS;
    digits_unpack(all, labels);
    memset(wanted, true, sizeof wanted);
    assert_int_equal(dataset_open("digits", &(struct dataset_options){.seed = 1}, &dataset, NULL),
                     RC_OK);
    assert_int_equal(dataset_info(dataset)->train_samples, 1437);
    assert_int_equal(dataset_info(dataset)->test_samples, 360);
    assert_int_equal(dataset_info(dataset)->blocks, 1437);
    assert_int_equal(dataset_info(dataset)->classes, 10);
    assert_int_equal(dataset_load_test(dataset, 0, &test, NULL), RC_OK);
    assert_int_equal(test.count, 360);
    for (size_t i = 0; i < test.count; i++) {
        assert_int_equal(test.small_labels[i], labels[i * 5]);
        for (size_t k = 0; k < DIGITS_PIXELS; k++) {
            uint8_t value = all[i * 5 * DIGITS_PIXELS + k];

            assert_int_equal(test.bytes[i * DIGITS_PIXELS + k], (value * 255 + 8) / 16);
        }
    }
    assert_int_equal(dataset_load_blocks(dataset, wanted, &train, NULL), RC_OK);
    assert_int_equal(train.count, 1437);
    for (size_t i = 0; i < train.count * train.stored; i++) {
        if (train.bytes[i] > highest) highest = train.bytes[i];
    }
    assert_int_equal(highest, 255);
    assert_int_equal(dataset_load_labels(dataset, &train_labels, NULL), RC_OK);
    for (size_t i = 0, at = 0; i < DIGITS_SAMPLES; i++) {
        if (i % 5 != 0) assert_int_equal(train_labels[at++], labels[i]);
    }
    mem_free(train_labels);
    samples_deinit(&train);
    samples_deinit(&test);
    dataset_close(dataset);
    dataset_close(NULL);
    free(all);
}

/* Fashion-MNIST loads with its published shape; without the package the error says what to do. */
static void fashion_mnist_loads(void **state)
{
    struct samples test = {0};
    struct dataset *dataset;
    struct fault why;
    enum rc rc =
        dataset_open("fashion-mnist", &(struct dataset_options){.seed = 1}, &dataset, &why);

    (void)state;
    if (rc == RC_NOT_FOUND) {
        assert_non_null(strstr(why.text, "install the package dataset-fashion-mnist"));
        print_message("skipped the rest: dataset-fashion-mnist is not installed\n");
        skip();
    }
    assert_int_equal(rc, RC_OK);
    assert_int_equal(dataset_info(dataset)->train_samples, 60000);
    assert_int_equal(dataset_info(dataset)->test_samples, 10000);
    assert_int_equal(dataset_info(dataset)->height, 28);
    assert_int_equal(dataset_info(dataset)->classes, 10);
    assert_int_equal(dataset_info(dataset)->blocks, 235);
    assert_int_equal(dataset_load_test(dataset, 100, &test, &why), RC_OK);
    assert_int_equal(test.count, 100);
    assert_int_equal(test.small_labels[0], 9); /* an ankle boot */
    samples_deinit(&test);
    dataset_close(dataset);
}

/* All of the four usual names are found, gzipped or not. */
static void all_usual_names_are_found(void **state)
{
    static const char *const names[4][IDX_FILES] = {
        {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
         "t10k-labels-idx1-ubyte"},
        {"train-images.idx3-ubyte", "train-labels.idx1-ubyte", "t10k-images.idx3-ubyte",
         "t10k-labels.idx1-ubyte"},
    };

    (void)state;
    for (int form = 0; form < 4; form++) {
        struct scratch scratch;
        struct dataset *dataset;
        struct fault why = {""};

        scratch_init(&scratch);
        for (int i = 0; i < IDX_FILES; i++) {
            struct idx_example example = sound[i];

            example.name = names[form / 2][i];
            write_example(&scratch, &example);
            if (form % 2 == 1) compress(&scratch, example.name);
        }
        if (open_folder(&scratch, &dataset, &why) != RC_OK) fail_msg("%s", why.text);
        assert_int_equal(dataset_info(dataset)->train_samples, TRAIN);
        dataset_close(dataset);
        scratch_deinit(&scratch);
    }
}

/* Blocks together hold every sample once, with its label; one block is a random part of all. */
static void blocks_hold_every_sample_once(void **state)
{
    struct samples samples = {0};
    struct dataset *dataset;
    struct scratch scratch;
    unsigned seen[TRAIN] = {0};
    size_t total = 0;

    (void)state;
    scratch_init(&scratch);
    write_sound(&scratch);
    compress(&scratch, "train-images-idx3-ubyte");
    assert_int_equal(open_folder(&scratch, &dataset, NULL), RC_OK);
    assert_int_equal(dataset_info(dataset)->blocks, TRAIN);
    for (int part = 0; part < 3; part++) {
        bool wanted[TRAIN] = {false};
        size_t low = 0, count = part < 2 ? 256 : TRAIN - 512;

        memset(wanted + 256 * part, true, count);
        assert_int_equal(dataset_load_blocks(dataset, wanted, &samples, NULL), RC_OK);
        assert_int_equal(samples.count, count);
        assert_int_equal(samples.stored, PIXELS);
        for (size_t i = 0; i < samples.count; i++) {
            const uint8_t *image = samples.bytes + i * PIXELS;
            size_t index = image[0];

            assert_memory_equal(image, image + 1, PIXELS - 1);
            while (index < TRAIN && index % 10 != samples.small_labels[i]) {
                index += 251; /* the value names the index up to multiples of 251 */
            }
            assert_true(index < TRAIN);
            seen[image[0]]++;
            low += image[0] < 125;
        }
        total += samples.count;
        /* About half are low in each; 0 or all would be a sorted part. */
        if (part < 2) assert_in_range(low, 96, 170);
    }
    assert_int_equal(total, TRAIN);
    for (unsigned i = 0; i < 251; i++) {
        assert_int_equal(seen[i], i < TRAIN - 502 ? 3 : 2);
    }
    samples_deinit(&samples);
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

/* The order behind the blocks is the seed's: the same again, another for another seed. */
static void the_seed_orders_the_blocks(void **state)
{
    bool wanted[2 * DATASET_SMALL_BLOCKS] = {false};
    struct samples samples[3] = {{0}};

    (void)state;
    memset(wanted + 100, true, 512);
    for (int i = 0; i < 3; i++) {
        struct dataset *dataset;

        assert_int_equal(dataset_open("digits", &(struct dataset_options){.seed = i < 2 ? 5 : 6},
                                      &dataset, NULL),
                         RC_OK);
        assert_int_equal(dataset_load_blocks(dataset, wanted, &samples[i], NULL), RC_OK);
        assert_int_equal(samples[i].count, 512);
        dataset_close(dataset);
    }
    assert_memory_equal(samples[0].bytes, samples[1].bytes, 512 * DIGITS_PIXELS);
    assert_memory_equal(samples[0].small_labels, samples[1].small_labels, 512);
    assert_memory_not_equal(samples[0].bytes, samples[2].bytes, 512 * DIGITS_PIXELS);
    for (int i = 0; i < 3; i++) {
        samples_deinit(&samples[i]);
    }
}

/* No block at all is an empty set, not an error. */
static void no_block_is_an_empty_set(void **state)
{
    bool wanted[2 * DATASET_SMALL_BLOCKS] = {false};
    struct samples samples = {0};
    struct dataset *dataset;

    (void)state;
    assert_int_equal(dataset_open("digits", &(struct dataset_options){.seed = 1}, &dataset, NULL),
                     RC_OK);
    assert_int_equal(dataset_load_blocks(dataset, wanted, &samples, NULL), RC_OK);
    assert_int_equal(samples.count, 0);
    assert_int_equal(dataset_load_list(dataset, NULL, 0, &samples, NULL), RC_OK);
    assert_int_equal(samples.count, 0);
    samples_deinit(&samples);
    dataset_close(dataset);
}

/* A list is loaded in its order, exactly. */
static void lists_are_loaded_exactly(void **state)
{
    static const uint32_t indices[] = {0, 255, 7, TRAIN - 1, 256};
    struct samples samples = {0};
    struct dataset *dataset;
    struct scratch scratch;
    uint32_t order[TRAIN];
    bool wanted[TRAIN];

    (void)state;
    scratch_init(&scratch);
    write_sound(&scratch);
    assert_int_equal(open_folder(&scratch, &dataset, NULL), RC_OK);
    assert_int_equal(dataset_load_list(dataset, indices, 5, &samples, NULL), RC_OK);
    assert_int_equal(samples.count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(samples.small_labels[i], indices[i] % 10);
        assert_int_equal(samples.bytes[i * PIXELS + PIXELS - 1], indices[i] % 251);
    }
    assert_int_equal(dataset_load_list(dataset, (uint32_t[]){1, 2, 1}, 3, &samples, NULL),
                     RC_FORMAT);
    assert_int_equal(dataset_load_list(dataset, (uint32_t[]){TRAIN}, 1, &samples, NULL), RC_FORMAT);
    assert_int_equal(samples.count, 5);
    /* The order behind the blocks: all blocks lie in memory as it says. */
    memset(wanted, true, sizeof wanted);
    assert_int_equal(dataset_info(dataset)->blocks, TRAIN);
    assert_int_equal(dataset_load_blocks(dataset, wanted, &samples, NULL), RC_OK);
    dataset_order(1, order, TRAIN);
    for (size_t i = 0; i < TRAIN; i++) {
        assert_int_equal(samples.bytes[i * PIXELS], order[i] % 251);
    }
    samples_deinit(&samples);
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

/* Opening with example `which` replaced fails with `expected` and words that hold `reason`. */
static void refuse_file(int which, const struct idx_example *example, const char *reason)
{
    struct dataset *dataset = NULL;
    struct scratch scratch;
    struct fault why = {""};

    scratch_init(&scratch);
    for (int i = 0; i < IDX_FILES; i++) {
        write_example(&scratch, i == which ? example : &sound[i]);
    }
    if (open_folder(&scratch, &dataset, &why) != RC_FORMAT) fail_msg("taken: %s", reason);
    if (strstr(why.text, reason) == NULL) fail_msg("wanted '%s', said '%s'", reason, why.text);
    assert_non_null(strstr(why.text, scratch.folder));
    assert_null(dataset);
    scratch_deinit(&scratch);
}

/* A header that lies is refused when the set is opened, each lie with its reason. */
static void lying_headers_are_refused(void **state)
{
    struct idx_example lie;

    (void)state;
    for (int which = 0; which < IDX_FILES; which++) {
        const char *magic = sound[which].is_labels ? "byte labels (magic" : "byte images (magic";

        lie = sound[which];
        lie.magic = 0x804;
        refuse_file(which, &lie, magic);
        lie.magic = 0xd03;
        refuse_file(which, &lie, magic);
        lie = sound[which];
        lie.count = 0;
        refuse_file(which, &lie, "absurd count");
        lie.count = UINT32_MAX;
        refuse_file(which, &lie, "absurd count");
        lie.count = 1 << 24;
        refuse_file(which, &lie, "more samples than the file can hold");
        lie = sound[which];
        lie.values--;
        refuse_file(which, &lie, "more samples than the file can hold");
    }
    for (int which = IDX_TRAIN_IMAGES; which < IDX_FILES; which += IDX_TEST_IMAGES) {
        lie = sound[which];
        lie.height = 0;
        refuse_file(which, &lie, "absurd size");
        lie.height = 1025;
        refuse_file(which, &lie, "absurd size");
        lie = sound[which];
        lie.width = UINT32_MAX;
        refuse_file(which, &lie, "absurd size");
        lie.width = 0;
        refuse_file(which, &lie, "absurd size");
    }
    lie = sound[IDX_TRAIN_LABELS];
    lie.count--;
    refuse_file(IDX_TRAIN_LABELS, &lie, "it has 599 labels, but");
    lie = sound[IDX_TEST_IMAGES];
    lie.width--;
    refuse_file(IDX_TEST_IMAGES, &lie, "images of 3x2, but 3x3 in");
    lie = sound[IDX_TRAIN_LABELS];
    lie.values++;
    refuse_file(IDX_TRAIN_LABELS, &lie, "more bytes than its header says");
}

/* Lies that only the content shows are found when it is loaded, and nothing is handed out. */
static void lying_contents_are_refused(void **state)
{
    bool wanted[TRAIN]; /* so few have blocks of one */
    struct idx_example lie;
    struct samples samples = {0};
    struct dataset *dataset;
    struct scratch scratch;
    struct fault why;

    (void)state;
    memset(wanted, true, sizeof wanted);
    scratch_init(&scratch);
    write_sound(&scratch);
    lie = sound[IDX_TRAIN_IMAGES];
    lie.values++;
    write_example(&scratch, &lie);
    assert_int_equal(open_folder(&scratch, &dataset, &why), RC_OK);
    assert_int_equal(dataset_load_blocks(dataset, wanted, &samples, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "more bytes than its header says"));
    lie.count--;
    write_example(&scratch, &lie);
    assert_int_equal(dataset_load_blocks(dataset, wanted, &samples, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "changed since the start"));
    lie = sound[IDX_TEST_LABELS];
    lie.values++;
    write_example(&scratch, &lie);
    assert_int_equal(dataset_load_test(dataset, 0, &samples, &why), RC_FORMAT);
    assert_int_equal(unlink(scratch_path(&scratch, sound[IDX_TEST_IMAGES].name)), 0);
    assert_int_equal(dataset_load_test(dataset, 0, &samples, &why), RC_NOT_FOUND);
    assert_null(samples.bytes);
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

/* A test label beyond the classes that training knows is refused. */
static void unknown_test_labels_are_refused(void **state)
{
    static const uint8_t labels[8 + 4] = {0, 0, 8, 1, 0, 0, 0, 4, 0, 1, 200, 2};
    struct idx_example images = sound[IDX_TEST_IMAGES];
    struct samples samples = {0};
    struct dataset *dataset;
    struct scratch scratch;
    struct fault why;

    (void)state;
    scratch_init(&scratch);
    write_sound(&scratch);
    images.count = 4;
    images.values = 4 * PIXELS;
    write_example(&scratch, &images);
    scratch_write(&scratch, sound[IDX_TEST_LABELS].name, labels, sizeof labels);
    assert_int_equal(open_folder(&scratch, &dataset, &why), RC_OK);
    assert_int_equal(dataset_load_test(dataset, 2, &samples, &why), RC_OK);
    assert_int_equal(dataset_load_test(dataset, 0, &samples, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "label 200, but there are 10 classes"));
    assert_int_equal(samples.count, 2); /* the last good answer is still there */
    samples_deinit(&samples);
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

/* Truncated, damaged and false gzip files are refused; so are folders and files that are absent. */
static void damaged_gzip_is_refused(void **state)
{
    bool wanted[TRAIN]; /* so few have blocks of one */
    struct samples samples = {0};
    struct dataset *dataset;
    struct scratch scratch;
    struct stat status;
    struct fault why;
    FILE *file;

    (void)state;
    memset(wanted, true, sizeof wanted);
    scratch_init(&scratch);
    write_sound(&scratch);
    compress(&scratch, "train-images-idx3-ubyte");
    assert_int_equal(open_folder(&scratch, &dataset, &why), RC_OK);
    assert_int_equal(stat(scratch_path(&scratch, "train-images-idx3-ubyte.gz"), &status), 0);
    assert_int_equal(
        truncate(scratch_path(&scratch, "train-images-idx3-ubyte.gz"), status.st_size - 12), 0);
    assert_int_equal(dataset_load_blocks(dataset, wanted, &samples, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "ends too early"));
    write_example(&scratch, &sound[IDX_TRAIN_IMAGES]);
    compress(&scratch, "train-images-idx3-ubyte");
    file = fopen(scratch_path(&scratch, "train-images-idx3-ubyte.gz"), "r+b");
    assert_int_equal(fseek(file, -6, SEEK_END), 0); /* in the checksum */
    fputc('x', file);
    fputc('y', file);
    fclose(file);
    assert_int_equal(dataset_load_blocks(dataset, wanted, &samples, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "compressed data is damaged"));
    dataset_close(dataset);
    scratch_write(&scratch, "train-images-idx3-ubyte.gz", "hello, hello, hello", 19);
    assert_int_equal(open_folder(&scratch, &dataset, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "not gzip data"));
    scratch_write(&scratch, "train-images-idx3-ubyte.gz", "", 0);
    assert_int_equal(open_folder(&scratch, &dataset, &why), RC_FORMAT);
    assert_int_equal(unlink(scratch_path(&scratch, "train-images-idx3-ubyte.gz")), 0);
    assert_int_equal(open_folder(&scratch, &dataset, &why), RC_NOT_FOUND);
    assert_non_null(strstr(why.text, "/train-images-idx3-ubyte.gz: no such file; pass another "
                                     "file or folder of IDX files"));
    assert_null(strstr(why.text, "fashion"));
    assert_int_equal(mkdir(scratch_path(&scratch, "train-images-idx3-ubyte.gz"), 0755), 0);
    assert_int_equal(open_folder(&scratch, &dataset, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "it is a folder"));
    scratch_deinit(&scratch);
}

/* Specs with a mistake are refused with the column. */
static void mistyped_specs_are_refused(void **state)
{
    struct dataset *dataset;
    struct fault why;
    char endless[5000] = "idx:";

    (void)state;
    assert_int_equal(dataset_open("fashion", &(struct dataset_options){.seed = 1}, &dataset, &why),
                     RC_PARSE);
    assert_non_null(strstr(why.text, "column 1: unknown data set"));
    assert_int_equal(dataset_open("", &(struct dataset_options){.seed = 1}, &dataset, &why),
                     RC_PARSE);
    assert_int_equal(dataset_open("idx:", &(struct dataset_options){.seed = 1}, &dataset, &why),
                     RC_PARSE);
    assert_non_null(strstr(why.text, "column 5"));
    memset(endless + 4, 'x', sizeof endless - 5);
    assert_int_equal(dataset_open(endless, &(struct dataset_options){.seed = 1}, &dataset, &why),
                     RC_LIMIT);
}

/* Whichever allocation fails, opening and loading say RC_NOMEM and leak nothing. */
static void short_memory_is_survived(void **state)
{
    static const char *const specs[] = {"digits", NULL};
    static const uint32_t indices[] = {1, 2};
    uint64_t before = mem_blocks();
    bool wanted[2 * DATASET_SMALL_BLOCKS] = {true, true};
    struct scratch scratch;
    char folder[128];

    (void)state;
    scratch_init(&scratch);
    write_sound(&scratch);
    snprintf(folder, sizeof folder, "idx:%s", scratch.folder);
    for (int i = 0; i < 2; i++) {
        const char *spec = specs[i] == NULL ? folder : specs[i];

        for (uint64_t n = 0;; n++) {
            struct samples samples = {0};
            struct dataset *dataset = NULL;
            enum rc rc;

            mem_fail_after(n);
            rc = dataset_open(spec, &(struct dataset_options){.seed = 1}, &dataset, NULL);
            if (rc == RC_OK) rc = dataset_load_blocks(dataset, wanted, &samples, NULL);
            if (rc == RC_OK) rc = dataset_load_list(dataset, indices, 2, &samples, NULL);
            if (rc == RC_OK) rc = dataset_load_test(dataset, 0, &samples, NULL);
            samples_deinit(&samples);
            dataset_close(dataset);
            assert_int_equal(mem_blocks(), before);
            if (rc == RC_OK) break;
            assert_int_equal(rc, RC_NOMEM);
            assert_true(n < 100);
        }
    }
    mem_fail_after(UINT64_MAX);
    scratch_deinit(&scratch);
}

/* However files are damaged, the answer is an answer. */
static void random_damage_is_survived(void **state)
{
    uint64_t before = mem_blocks();

    (void)state;
    FOR_EACH_SEED (seed, 60) {
        bool wanted[1 << 10] = {true, true, true};
        struct samples samples = {0};
        struct dataset *dataset = NULL;
        struct scratch scratch;
        struct rng rng;
        FILE *file;

        scratch_init(&scratch);
        write_sound(&scratch);
        rng_init(&rng, seed, 1);
        file = fopen(scratch_path(&scratch, sound[rng_below(&rng, IDX_FILES)].name), "r+b");
        for (int i = 0; i < 3; i++) {
            assert_int_equal(fseek(file, (long)rng_below(&rng, 24), SEEK_SET), 0);
            fputc((int)rng_below(&rng, 256), file);
        }
        fclose(file);
        if (open_folder(&scratch, &dataset, NULL) == RC_OK &&
            dataset_info(dataset)->blocks <= 1 << 10) {
            enum rc rc = dataset_load_blocks(dataset, wanted, &samples, NULL);

            check_seed(seed, rc == RC_OK || samples.bytes == NULL);
        }
        samples_deinit(&samples);
        dataset_close(dataset);
        check_seed(seed, mem_blocks() == before);
        scratch_deinit(&scratch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_digits_are_the_known_ones),
        cmocka_unit_test(digits_are_split_one_in_five),
        cmocka_unit_test(fashion_mnist_loads),
        cmocka_unit_test(all_usual_names_are_found),
        cmocka_unit_test(blocks_hold_every_sample_once),
        cmocka_unit_test(the_seed_orders_the_blocks),
        cmocka_unit_test(no_block_is_an_empty_set),
        cmocka_unit_test(lists_are_loaded_exactly),
        cmocka_unit_test(lying_headers_are_refused),
        cmocka_unit_test(lying_contents_are_refused),
        cmocka_unit_test(unknown_test_labels_are_refused),
        cmocka_unit_test(damaged_gzip_is_refused),
        cmocka_unit_test(mistyped_specs_are_refused),
        cmocka_unit_test(short_memory_is_survived),
        cmocka_unit_test(random_damage_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
