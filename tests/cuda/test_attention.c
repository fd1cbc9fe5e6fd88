/* Attention on the device against its plain C twin: shapes of every kernel, limits and repeats. */
#include "tests/cuda/parity.h"

#include "base/check.h"

/* Tensors of one pass, on the host and on the device. */
struct pass {
    struct attention attention;
    size_t values, statistics; /* values: of y */
    float *qkv, *dy;           /* on the host */
    struct {
        float *qkv, *y, *statistics, *dy, *dqkv;
    } device;
};

static struct pass pass_of(struct parity *p, struct attention attention, double size)
{
    struct pass pass = {.attention = attention};

    pass.values = (size_t)attention.samples * attention.steps * attention.width;
    pass.statistics = attention_statistics(&attention);
    pass.qkv = parity_activations(p, 3 * pass.values, size);
    pass.dy = parity_activations(p, pass.values, 1.0);
    return pass;
}

static void put(struct parity *p, struct pass *pass)
{
    pass->device.qkv = parity_put_activations(p, pass->qkv, 3 * pass->values);
    pass->device.dy = parity_put_activations(p, pass->dy, pass->values);
    pass->device.y = parity_room(p, pass->values);
    pass->device.statistics = parity_block(p, pass->statistics * sizeof(float));
    pass->device.dqkv = parity_room(p, 3 * pass->values);
}

static void run(struct parity *p, const struct pass *pass)
{
    const struct backend_ops *ops = p->device->ops;
    struct attention_backward back = {
        .qkv = pass->device.qkv,
        .y = pass->device.y,
        .dy = pass->device.dy,
        .statistics = pass->device.statistics,
        .dqkv = pass->device.dqkv,
    };

    parity_ok(p, ops->attention_reserve(p->device, &pass->attention));
    parity_ok(p, ops->attention_forward(p->device, &pass->attention, pass->device.qkv,
                                        pass->device.y, pass->device.statistics));
    parity_ok(p, ops->attention_backward(p->device, &pass->attention, &back));
}

/* Queries, keys and values each by their own norm: a wrong one must not hide behind the others. */
static void compare_gradients(struct parity *p, uint64_t seed, const struct pass *pass,
                              const float *wanted)
{
    static const char *const names[] = {"dqueries", "dkeys", "dvalues"};
    const float *got = parity_get_activations(p, pass->device.dqkv, 3 * pass->values);
    size_t width = pass->attention.width, rows = pass->values / width;
    float *parts[2] = {parity_host(p, pass->values * sizeof(float)),
                       parity_host(p, pass->values * sizeof(float))};
    char what[96];

    for (size_t part = 0; part < 3; part++) {
        for (size_t r = 0; r < rows; r++) {
            const size_t at = (3 * r + part) * width;
            memcpy(parts[0] + r * width, got + at, width * sizeof(float));
            memcpy(parts[1] + r * width, wanted + at, width * sizeof(float));
        }
        snprintf(what, sizeof(what), "%s, %u steps, %u heads of %zu%s%s", names[part],
                 pass->attention.steps, pass->attention.heads, width / pass->attention.heads,
                 pass->attention.is_causal ? ", causal" : "",
                 pass->attention.is_rotary ? ", rotary" : "");
        /* of a single step the first two are zero: there is nothing to be relative to */
        if (pass->attention.steps == 1 && part < 2) {
            parity_compare(p, seed, what, parts[0], parts[1], pass->values,
                           p->is_bf16 ? 0.02 * sqrt((double)pass->values) : 1e-5);
        } else {
            parity_compare(p, seed, what, parts[0], parts[1], pass->values,
                           p->is_bf16 ? 2e-2 : 1e-5);
        }
    }
}

static void check_pass(struct parity *p, uint64_t seed, struct attention attention)
{
    struct pass pass = pass_of(p, attention, 1.0);
    float *y = parity_host(p, pass.values * sizeof(float));
    float *statistics = parity_host(p, pass.statistics * sizeof(float));
    float *dqkv = parity_host(p, 3 * pass.values * sizeof(float));
    struct attention_backward back = {
        .qkv = pass.qkv, .y = y, .dy = pass.dy, .statistics = statistics, .dqkv = dqkv};
    char what[96];

    put(p, &pass);
    run(p, &pass);
    parity_ok(p, p->host->ops->attention_forward(p->host, &attention, pass.qkv, y, statistics));
    parity_ok(p, p->host->ops->attention_backward(p->host, &attention, &back));
    snprintf(what, sizeof(what), "y, %u steps, %u heads of %u%s%s", attention.steps,
             attention.heads, attention.width / attention.heads,
             attention.is_causal ? ", causal" : "", attention.is_rotary ? ", rotary" : "");
    parity_check_activations(p, seed, what, pass.device.y, y, pass.values, 1e-5, 1e-2);
    compare_gradients(p, seed, &pass, dqkv);
}

/* For each head width, with all numbers of steps or some of them, in turns causal and rotary. */
static void widths(bool is_bf16, uint64_t seed, const uint32_t *list, size_t count)
{
    static const uint32_t steps[] = {1, 17, 64, 65, 200};

    for (size_t i = 0; i < count; i++) {
        struct parity *p = parity_begin(is_bf16, 100 * seed + i);
        for (size_t s = 0; s < ARRAY_COUNT(steps); s++) {
            struct attention attention = {.steps = steps[s]};

            attention.heads = 1 + (uint32_t)rng_below(&p->rng, 2);
            attention.samples = 1 + (uint32_t)rng_below(&p->rng, 2);
            attention.width = attention.heads * list[i];
            attention.is_causal = (s + seed) % 2 == 0;
            attention.is_rotary = list[i] % 2 == 0 && (s + i + seed / 2) % 2 == 0;
            check_pass(p, seed, attention);
        }
        parity_end(p);
    }
}

/* Widths that tensor cores take in bfloat16, and widths they do not. */
static void narrow_heads_equal_their_twin(bool is_bf16, uint64_t seed)
{
    widths(is_bf16, seed, (const uint32_t[]){16, 32}, 2);
}

static void heads_of_64_equal_their_twin(bool is_bf16, uint64_t seed)
{
    widths(is_bf16, seed, (const uint32_t[]){64}, 1);
}

static void wide_heads_equal_their_twin(bool is_bf16, uint64_t seed)
{
    widths(is_bf16, seed, (const uint32_t[]){80, 96, 128}, 3);
}

static void odd_heads_equal_their_twin(bool is_bf16, uint64_t seed)
{
    widths(is_bf16, seed, (const uint32_t[]){1, 7, 8, 24, 144}, 5);
}

/* Enough sequences to fill a device with tiles of 128 queries; three widths a seed, as this takes
 * its time. */
static void tiles_of_128_rows_equal_their_twin(void **state)
{
    static const uint32_t widths[] = {64, 16, 128, 32, 80, 96};

    (void)state;
    FOR_EACH_SEED (seed, 2) {
        for (size_t i = 0; i < 3; i++) {
            struct parity *p = parity_begin(true, seed);
            struct attention attention = {.samples = 22, .steps = 130, .heads = 3};

            attention.width = attention.heads * widths[(i + 3 * seed + 3) % 6];
            attention.is_causal = (i + seed) % 2 == 0;
            attention.is_rotary = (i + seed) % 4 < 2;
            check_pass(p, seed, attention);
            parity_end(p);
        }
    }
}

static void thousands_of_steps_are_turned_exactly(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);
    struct attention attention = {.samples = 1, .heads = 1, .width = 16};

    attention.steps = is_bf16 ? 3000 : 1500;
    attention.is_causal = attention.is_rotary = true;
    check_pass(p, seed, attention);
    parity_end(p);
}

/* Equal calls give equal bits, whatever scratch and results held before, with and without
 * statistics, and in a batch that is not full. */
static void equal_calls_give_equal_bits(bool is_bf16, uint64_t seed)
{
    static const uint32_t widths[] = {64, 24};

    for (size_t i = 0; i < ARRAY_COUNT(widths); i++) {
        struct parity *p = parity_begin(is_bf16, seed);
        struct attention attention = {.samples = 3, .steps = 100, .heads = 2};

        attention.width = attention.heads * widths[i];
        attention.is_causal = attention.is_rotary = true;
        struct pass one = pass_of(p, attention, 1.0), two = one;
        put(p, &one);
        put(p, &two);
        run(p, &one);
        two.attention.samples = 2;
        run(p, &two);

        size_t values = one.values * 2 / 3;
        float *y[2] = {parity_get_activations(p, one.device.y, values),
                       parity_get_activations(p, two.device.y, values)};
        float *dqkv[2] = {parity_get_activations(p, one.device.dqkv, 3 * values),
                          parity_get_activations(p, two.device.dqkv, 3 * values)};
        check_seed(seed, memcmp(y[0], y[1], values * sizeof(float)) == 0);
        check_seed(seed, memcmp(dqkv[0], dqkv[1], 3 * values * sizeof(float)) == 0);
        parity_ok(p, p->device->ops->attention_forward(p->device, &attention, two.device.qkv,
                                                       two.device.y, NULL));
        y[1] = parity_get_activations(p, two.device.y, values);
        check_seed(seed, memcmp(y[0], y[1], values * sizeof(float)) == 0);
        p->checks += 3;
        parity_end(p);
    }
}

/* Activations may begin at any value: then no wide loads are to be had. */
static void any_address_will_do(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);
    struct attention attention = {.samples = 1, .steps = 70, .heads = 2, .width = 64};
    struct pass even, odd;

    attention.is_rotary = true;
    even = odd = pass_of(p, attention, 1.0);
    put(p, &even);
    odd.qkv = parity_host(p, (3 * odd.values + 1) * sizeof(float));
    memcpy(odd.qkv + 1, even.qkv, 3 * odd.values * sizeof(float));
    odd.qkv[0] = 0.0F;
    odd.device = even.device;
    odd.device.qkv = parity_put_activations(p, odd.qkv, 3 * odd.values + 1);
    odd.device.qkv = backend_at(p->device, odd.device.qkv, 1);
    odd.device.y = backend_at(p->device, parity_room(p, odd.values + 1), 1);
    odd.device.dqkv = backend_at(p->device, parity_room(p, 3 * odd.values + 1), 1);
    run(p, &even);
    run(p, &odd);
    parity_check_activations(p, seed, "y", odd.device.y,
                             parity_get_activations(p, even.device.y, even.values), even.values,
                             1e-6, 1e-2);
    parity_check_activations(p, seed, "dqkv", odd.device.dqkv,
                             parity_get_activations(p, even.device.dqkv, 3 * even.values),
                             3 * even.values, 1e-6, 2e-2);
    parity_end(p);
}

/* Scores of 1e6 and 1e34: one key takes all, nothing overflows on the way. */
static void huge_scores_choose_one_key_and_stay_finite(bool is_bf16, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        struct parity *p = parity_begin(is_bf16, seed);
        struct attention attention = {.samples = 1, .steps = 150, .heads = 2, .width = 64};
        size_t wrong = 0;

        attention.is_causal = i & 1;
        struct pass pass = pass_of(p, attention, 1.0);
        for (size_t at = 0; at < 3 * pass.values; at++) {
            bool is_value = at % 192 >= 128;
            if (!is_value) pass.qkv[at] = ldexpf(pass.qkv[at], i & 2 ? 57 : 10);
        }
        put(p, &pass);
        run(p, &pass);
        float *y = parity_host(p, pass.values * sizeof(float));
        parity_ok(p, p->host->ops->attention_forward(p->host, &attention, pass.qkv, y, NULL));
        parity_check_activations(p, seed, "y", pass.device.y, y, pass.values, 5e-2, 5e-2);
        const float *dqkv = parity_get_activations(p, pass.device.dqkv, 3 * pass.values);
        for (size_t at = 0; at < 3 * pass.values; at++) {
            if (!isfinite(dqkv[at])) wrong++;
        }
        check_seed(seed, wrong == 0);
        parity_end(p);
    }
}

/* What is no number is not lost on the way to the results; a score of minus infinity has no
 * weight. */
static void a_nan_and_an_infinite_score_show_in_the_result(bool is_bf16, uint64_t seed)
{
    for (int i = 0; i < 3; i++) {
        struct parity *p = parity_begin(is_bf16, seed);
        struct attention attention = {.samples = 1, .steps = 40, .heads = 1, .width = 16};
        struct pass pass = pass_of(p, attention, 1.0);
        const float *y;

        pass.qkv[48 * 30 + 16] = i == 0 ? NAN : INFINITY; /* a key */
        pass.qkv[48 * 5] = i == 2 ? -1.0F : 1.0F;         /* score: +inf or -inf */
        put(p, &pass);
        run(p, &pass);
        y = parity_get_activations(p, pass.device.y, pass.values);
        check_seed(seed, i == 2 ? isfinite(y[16 * 5]) : isnan(y[16 * 5]));
        p->checks++;
        parity_end(p);
    }
}

#ifndef PARITY_IS_VIRTUAL /* it would take minutes there */
/* Of a size for which cuDNN's kernels are tried too. */
static void a_pass_worth_a_trial_equals_its_twin(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct parity *p = parity_begin(true, 1);
        struct attention attention = {.samples = 1, .steps = 2048, .heads = 4, .width = 256};

        attention.is_causal = true;
        attention.is_rotary = i == 1;
        check_pass(p, 1, attention);
        parity_end(p);
    }
}
#endif

PARITY_TEST(narrow_heads_equal_their_twin)
PARITY_TEST(heads_of_64_equal_their_twin)
PARITY_TEST(wide_heads_equal_their_twin)
PARITY_TEST(odd_heads_equal_their_twin)
PARITY_TEST(thousands_of_steps_are_turned_exactly)
PARITY_TEST(equal_calls_give_equal_bits)
PARITY_TEST(any_address_will_do)
PARITY_TEST(huge_scores_choose_one_key_and_stay_finite)
PARITY_TEST(a_nan_and_an_infinite_score_show_in_the_result)

static const struct CMUnitTest tests[] = {
    PARITY_BOTH(narrow_heads_equal_their_twin),
    PARITY_BOTH(heads_of_64_equal_their_twin),
    PARITY_BOTH(wide_heads_equal_their_twin),
    PARITY_BOTH(odd_heads_equal_their_twin),
    cmocka_unit_test(tiles_of_128_rows_equal_their_twin),
    PARITY_BOTH(thousands_of_steps_are_turned_exactly),
    PARITY_BOTH(equal_calls_give_equal_bits),
    PARITY_BOTH(any_address_will_do),
    PARITY_BOTH(huge_scores_choose_one_key_and_stay_finite),
    PARITY_BOTH(a_nan_and_an_infinite_score_show_in_the_result),
#ifndef PARITY_IS_VIRTUAL
    cmocka_unit_test(a_pass_worth_a_trial_equals_its_twin),
#endif
};

PARITY_MAIN("attention", tests)
