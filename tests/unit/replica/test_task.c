/* task: what peers must have in common for a mean of their models to make sense. */
#include "tests/check.h"

#include "kernels/cpu/cpu_backend.h"
#include "replica/learners/task.h"

/* The meaning of a model of `spec` for this data. */
static struct digest meaning_of(const char *spec, const struct dataset_info *info)
{
    struct backend *cpu = cpu_backend_create(&(struct cpu_backend_options){.threads = 1});
    struct model_options options = {.spec = spec, .batch_max = 1};
    struct fault why = {""};
    struct model *model = NULL;
    struct digest digest;

    task_describe(info, &options);
    if (model_create(cpu, &options, &model, &why) != RC_OK) fail_msg("%s", why.text);
    digest = task_meaning(info, model);
    model_set_meaning(model, digest);
    assert_true(digest_is_equal(model_schema(model)->meaning, digest));
    model_destroy(model);
    backend_destroy(cpu);
    return digest;
}

static struct dataset_info text_of(const char *symbols)
{
    struct dataset_info info = {.input = DATA_TOKENS,
                                .target = DATA_NEXT_TOKEN,
                                .channels = 1,
                                .height = 1,
                                .width = 8,
                                .labels_per_sample = 8};

    info.symbols = info.classes = info.outputs = (uint32_t)strlen(symbols);
    memcpy(info.symbol_bytes, symbols, strlen(symbols));
    return info;
}

static struct dataset_info table_of(const char *const *words)
{
    return (struct dataset_info){.input = DATA_VECTORS,
                                 .channels = 3,
                                 .height = 1,
                                 .width = 1,
                                 .classes = 2,
                                 .outputs = 2,
                                 .labels_per_sample = 1,
                                 .class_words = words};
}

/* Texts of other symbols, tables of other classes and layers that compute something else, all with
 * tensors of equal shapes, must not be mixed. */
static void equal_shapes_may_mean_different_things(void **state)
{
    static const char *const pets[] = {"cat", "dog"}, *const hats[] = {"cap", "hat"};
    struct dataset_info abc = text_of("abc"), abd = text_of("abd");
    struct dataset_info numbers = table_of(NULL), of_pets = table_of(pets),
                        of_hats = table_of(hats);
    const char *tokens = "embed:4 linear:classes", *vectors = "linear:4 relu linear:classes";
    struct digest pet_digest = meaning_of(vectors, &of_pets);

    (void)state;
    assert_false(digest_is_equal(meaning_of(tokens, &abc), meaning_of(tokens, &abd)));
    assert_false(digest_is_equal(pet_digest, meaning_of(vectors, &of_hats)));
    assert_false(digest_is_equal(pet_digest, meaning_of(vectors, &numbers)));
    assert_false(digest_is_equal(pet_digest, meaning_of("linear:4 tanh linear:classes", &of_pets)));
    numbers.target = DATA_REALS;
    assert_false(digest_is_equal(meaning_of(vectors, &numbers), pet_digest));
}

/* Samples are each peer's own: how many there are, how long sequences are, and how words for
 * images are called make no difference, nor does another way to write the same layers. */
static void what_is_each_peers_own_is_left_out(void **state)
{
    static const char *const shoes[] = {"boot", "shoe"};
    struct dataset_info ours = text_of("abc"), theirs = text_of("abc");
    struct dataset_info images = table_of(NULL), named = table_of(shoes);

    (void)state;
    theirs.width = theirs.labels_per_sample = 5;
    theirs.train_samples = 99;
    assert_true(digest_is_equal(meaning_of("embed:4 linear:classes", &ours),
                                meaning_of("  embed:4  linear:classes ", &theirs)));
    images.input = named.input = DATA_IMAGES;
    assert_true(digest_is_equal(meaning_of("linear:classes", &images),
                                meaning_of("linear:classes", &named)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_shapes_may_mean_different_things),
        cmocka_unit_test(what_is_each_peers_own_is_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
