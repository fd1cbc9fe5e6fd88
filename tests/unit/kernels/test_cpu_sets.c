/* Instruction sets: what our loops compute has the same bits on each that this processor has;
 * attention, which fuses multiplications and additions, on each that can. */
#include "tests/unit/kernels/norm_values.h"

#include "base/cpu.h"
#include "base/hash_wide.h"
#include "base/norm.h"
#include "kernels/codec.h"

/* What a group of loops computes from a seed, as one digest. */
typedef void (*compute_function)(struct rng *rng, struct backend *backend, struct hash *bits);

static void add(struct hash *bits, float *values, size_t count)
{
    hash_update(bits, values, count * sizeof(*values));
    mem_free(values);
}

static void compute_sums(struct rng *rng, struct backend *backend, struct hash *bits)
{
    /* Whole stripes of the wide hash every other time. */
    size_t count = rng_below(rng, 2) == 0 ? between(rng, 1, 5000) : 256 * between(rng, 1, 20);
    float *x = random_values(rng, count, 0.1, 1.0), *y = random_values(rng, count, 0.0, 1.0);
    double sums[3];
    struct digest wide = hash_wide_of(x, count * sizeof(*x));

    sums[0] = norm_squared(x, count);
    sums[1] = norm_squared_apart(x, y, count);
    assert_int_equal(backend->ops->squared_norm(backend, x, count, &sums[2]), RC_OK);
    assert_true(digest_is_equal(wide, hash_wide_plain(x, count * sizeof(*x))));
    hash_update(bits, sums, sizeof sums);
    mem_free(x);
    mem_free(y);
}

static void compute_activations(struct rng *rng, struct backend *backend, struct hash *bits)
{
    size_t count = between(rng, 1, 3000);

    for (int kind = 0; kind < ACTIVATION_COUNT; kind++) {
        struct activation activation = {(enum activation_kind)kind, 0.1F};
        float *x = random_values(rng, count, 0.0, 20.0), *dy = random_values(rng, count, 0.0, 1.0);
        float *y = poisoned(count), *dx = poisoned(count);

        assert_int_equal(backend->ops->activation_forward(backend, activation, x, y, count), RC_OK);
        assert_int_equal(backend->ops->activation_backward(
                             backend, activation,
                             activation_needs_input(activation.kind) ? x : NULL, y, dy, dx, count),
                         RC_OK);
        mem_free(x);
        mem_free(dy);
        add(bits, y, count);
        add(bits, dx, count);
    }
}

static void compute_pooling(struct rng *rng, struct backend *backend, struct hash *bits)
{
    static const uint32_t blocks[] = {1, 4, 8, 16, 24, 48};
    struct pool_options o = {.kind = POOL_MAX, .size = between(rng, 2, 3)};
    size_t ins, outs;
    float *x, *y, *dy, *dx;
    uint8_t *winner;

    o.stride = between(rng, 1, 3);
    o.padding = between(rng, 0, 1);
    o.with_relu = rng_below(rng, 2) == 0;
    o.in = (struct image_shape){48, between(rng, 3, 12), between(rng, 3, 40),
                                blocks[rng_below(rng, ARRAY_COUNT(blocks))]};
    o.out =
        (struct image_shape){48, windows_fit(o.in.height, o.size, o.padding, o.stride, 1),
                             windows_fit(o.in.width, o.size, o.padding, o.stride, 1), o.in.block};
    ins = image_values(o.in);
    outs = image_values(o.out);
    x = random_values(rng, ins, 0.0, 1.0);
    dy = random_values(rng, outs, 0.0, 1.0);
    y = poisoned(outs);
    dx = poisoned(ins);
    winner = mem_alloc(outs);
    assert_non_null(winner);
    assert_int_equal(backend->ops->pool_forward(backend, &o, 1, x, y, winner), RC_OK);
    assert_int_equal(backend->ops->pool_backward(backend, &o, 1, dy, winner, dx), RC_OK);
    hash_update(bits, winner, outs);
    mem_free(winner);
    mem_free(x);
    mem_free(dy);
    add(bits, y, outs);
    add(bits, dx, ins);
}

static void compute_batch_norm(struct rng *rng, struct backend *backend, struct hash *bits)
{
    struct batch_norm norm = {random_shape(rng), 1e-5F, 0.1F, rng_below(rng, 2) == 0};
    size_t count = 2 * image_values(norm.shape), channels = norm.shape.channels;
    float *x = random_values(rng, count, 1.0, 2.0), *dy = random_values(rng, count, 0.0, 1.0);
    float *mean = random_values(rng, channels, 1.0, 0.2);
    float *rstd = random_values(rng, channels, 1.0, 0.2);
    float *y = poisoned(count), *dx = poisoned(count);
    double *sums = mem_array(4 * channels, sizeof(*sums));
    struct batch_norm_backward pass = {
        .x = x, .y = y, .dy = dy, .dx = dx, .mean = mean, .rstd = rstd, .gamma = rstd};

    assert_non_null(sums);
    memset(sums, 0, 4 * channels * sizeof(*sums));
    pass.sums = sums + 2 * channels;
    pass.count = 2 * (uint64_t)norm.shape.height * norm.shape.width;
    assert_int_equal(backend->ops->batch_norm_collect(backend, &norm, 2, x, sums), RC_OK);
    assert_int_equal(backend->ops->batch_norm_apply(
                         backend, &norm, 2, x, &(struct channel_affine){mean, rstd, rstd, mean}, y),
                     RC_OK);
    assert_int_equal(backend->ops->batch_norm_backward_collect(backend, &norm, 2, &pass), RC_OK);
    assert_int_equal(backend->ops->batch_norm_backward_apply(backend, &norm, 2, &pass), RC_OK);
    hash_update(bits, sums, 4 * channels * sizeof(*sums));
    mem_free(sums);
    mem_free(x);
    mem_free(mean);
    mem_free(rstd);
    add(bits, dy, count);
    add(bits, y, count);
    add(bits, dx, count);
}

static void compute_attention(struct rng *rng, struct backend *backend, struct hash *bits)
{
    struct attention attention = {.samples = 2, .steps = between(rng, 1, 90), .heads = 2};
    size_t rows, statistics;
    float *qkv, *y, *kept, *dy, *dqkv;
    struct attention_backward pass;

    attention.width = 2 * between(rng, 1, 20);
    attention.is_causal = rng_below(rng, 2) == 0;
    rows = (size_t)attention.samples * attention.steps;
    statistics = attention_statistics(&attention);
    qkv = random_values(rng, rows * 3 * attention.width, 0.0, 1.0);
    dy = random_values(rng, rows * attention.width, 0.0, 1.0);
    y = poisoned(rows * attention.width);
    kept = poisoned(statistics);
    dqkv = poisoned(rows * 3 * attention.width);
    pass = (struct attention_backward){qkv, y, dy, kept, dqkv};
    assert_int_equal(backend->ops->attention_reserve(backend, &attention), RC_OK);
    assert_int_equal(backend->ops->attention_forward(backend, &attention, qkv, y, kept), RC_OK);
    assert_int_equal(backend->ops->attention_backward(backend, &attention, &pass), RC_OK);
    mem_free(qkv);
    mem_free(dy);
    mem_free(kept);
    add(bits, y, rows * attention.width);
    add(bits, dqkv, rows * 3 * attention.width);
}

static void compute_codecs(struct rng *rng, struct backend *backend, struct hash *bits)
{
    size_t count = between(rng, 1, 2000);
    float *x = random_values(rng, count, 0.0, 3.0);

    (void)backend;
    for (int format = 0; format < CODEC_FORMATS; format++) {
        size_t bytes = codec_bytes((enum codec_format)format, count);
        uint8_t *coded = mem_alloc(bytes);
        float *y = poisoned(count);

        assert_non_null(coded);
        codec_encode((enum codec_format)format, x, count, coded);
        assert_int_equal(codec_decode((enum codec_format)format, coded, y, count), RC_OK);
        hash_update(bits, coded, bytes);
        mem_free(coded);
        add(bits, y, count);
    }
    mem_free(x);
}

static void compute_updates(struct rng *rng, struct backend *backend, struct hash *bits)
{
    size_t count = between(rng, 1, 3000);

    for (int kind = UPDATE_SGD; kind <= UPDATE_ADAMW; kind++) {
        struct update update = {
            .kind = (enum update_kind)kind, .rate = 0.1F, .beta = 0.9F, .beta2 = 0.99F};
        float *gradient = random_values(rng, count, 0.0, 1.0);
        float *moments = random_values(rng, 2 * count, 1.0, 0.5);
        float *values = random_values(rng, count, 0.0, 1.0);

        update.epsilon = 1e-8F;
        update.decay = 1e-3F;
        assert_int_equal(backend->ops->update(backend, &update, gradient, moments, values, count),
                         RC_OK);
        mem_free(gradient);
        add(bits, moments, 2 * count);
        add(bits, values, count);
    }
}

static struct digest computed(compute_function compute, uint64_t seed)
{
    struct backend *backend = backend_of(false);
    struct hash bits;
    struct rng rng;

    assert_non_null(backend);
    hash_init(&bits);
    rng_init(&rng, seed, 1);
    compute(&rng, backend, &bits);
    backend_destroy(backend);
    return hash_final(&bits);
}

static void loops_give_the_same_bits_on_each_instruction_set(void **state)
{
    static const compute_function all[] = {compute_sums,       compute_activations, compute_pooling,
                                           compute_batch_norm, compute_attention,   compute_codecs,
                                           compute_updates};
    const enum cpu_set used = cpu_used;
    (void)state;

    FOR_EACH_SEED (seed, 12) {
        for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
            struct digest expected = computed(all[i], seed);
            int set = all[i] == compute_attention ? CPU_AVX2 : CPU_BASELINE;
            for (; set < (int)used; set++) {
                cpu_used = (enum cpu_set)set;
                check_seed(seed, digest_is_equal(computed(all[i], seed), expected));
            }
            cpu_used = used;
        }
    }
}

static void what_is_used_is_said(void **state)
{
    const enum cpu_set used = cpu_used;
    char text[64], expected[64];
    (void)state;

    for (int set = CPU_BASELINE; set <= (int)cpu_best(); set++) {
        cpu_used = (enum cpu_set)set;
        assert_true(cpu_has(CPU_BASELINE) && cpu_has((enum cpu_set)set));
        assert_false(cpu_has((enum cpu_set)(set + 1)));
        cpu_describe(text, sizeof text);
        snprintf(expected, sizeof expected,
                 set == (int)cpu_best() ? "%s" : "%s by GRAPEVINE_CPU, of %s",
                 cpu_name((enum cpu_set)set), cpu_name(cpu_best()));
        assert_string_equal(text, expected);
    }
    cpu_used = used;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_give_the_same_bits_on_each_instruction_set),
        cmocka_unit_test(what_is_used_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
