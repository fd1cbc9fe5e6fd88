/*
 * Embeddings and positions on the device: rows are copied exactly, and gradients are added in one
 * order, whichever tokens come how often.
 */
#include "tests/cuda/parity.h"

#include "base/check.h"
#include "kernels/sequence.h"

enum spread { SPREAD_EVEN, SPREAD_SKEWED, SPREAD_ONE, SPREAD_RISING };

struct shape {
    uint32_t rows, symbols, width;
    enum spread spread;
};

static const struct shape shapes[] = {{1, 1, 1, SPREAD_EVEN},        {16, 3, 8, SPREAD_EVEN},
                                      {17, 3, 8, SPREAD_ONE},        {33, 5, 7, SPREAD_SKEWED},
                                      {100, 50257, 24, SPREAD_EVEN}, {500, 73, 64, SPREAD_SKEWED},
                                      {1030, 40, 300, SPREAD_EVEN},  {700, 700, 12, SPREAD_RISING},
                                      {1000, 9, 4, SPREAD_ONE},      {70, 11, 1030, SPREAD_SKEWED}};

/* More rows than one panel of the way back. */
static const struct shape large_shapes[] = {
    {8192, 73, 8, SPREAD_SKEWED}, {8300, 2, 5, SPREAD_EVEN}, {16500, 50257, 4, SPREAD_SKEWED}};

static float *tokens_create(struct parity *p, const struct shape *shape)
{
    float *tokens = parity_host(p, shape->rows * sizeof(*tokens));

    for (uint32_t r = 0; r < shape->rows; r++) {
        double u = rng_unit(&p->rng);
        if (shape->spread == SPREAD_SKEWED) u = u * u * u * u;
        if (shape->spread == SPREAD_ONE) u = 0.999;
        if (shape->spread == SPREAD_RISING) u = (double)r / shape->rows;
        tokens[r] = (float)(uint32_t)(u * shape->symbols);
    }
    return tokens;
}

/* `offset` values behind an aligned address. */
static float *put_values_at(struct parity *p, const float *from, size_t n, size_t offset)
{
    float *to = (float *)parity_block(p, (n + offset) * sizeof(*to)) + offset;

    parity_ok(p, p->device->ops->upload(p->device, to, from, n * sizeof(*to)));
    return to;
}

static float *put_activations_at(struct parity *p, const float *from, size_t n, size_t offset)
{
    float *to = backend_at(p->device, parity_room(p, n + offset), offset);

    parity_ok(p, p->device->ops->to_activations(p->device, parity_put_values(p, from, n), to, n));
    return to;
}

static void check_exactly(struct parity *p, uint64_t seed, const float *device, const float *wanted,
                          size_t n)
{
    const float *got = parity_get_activations(p, device, n);

    p->checks++;
    for (size_t i = 0; i < n; i++) {
        float rounded = p->is_bf16 ? parity_to_bf16(wanted[i]) : wanted[i];
        check_seed(seed, got[i] == rounded || (isnan(got[i]) && isnan(rounded)));
    }
}

static void check_forward(struct parity *p, uint64_t seed, const struct shape *shape, size_t offset)
{
    struct embedding embedding = {.symbols = shape->symbols, .width = shape->width};
    size_t n = (size_t)shape->rows * shape->width, table_n = (size_t)shape->symbols * shape->width;
    float *tokens = tokens_create(p, shape), *table = parity_values(p, table_n, 1.0);
    float *wanted = parity_host(p, n * sizeof(*wanted));
    float *on_y = backend_at(p->device, parity_room(p, n + offset), offset);

    parity_ok(p, p->device->ops->embedding_forward(p->device, &embedding, shape->rows,
                                                   parity_put_values(p, tokens, shape->rows),
                                                   put_values_at(p, table, table_n, offset), on_y));
    assert_int_equal(
        p->host->ops->embedding_forward(p->host, &embedding, shape->rows, tokens, table, wanted),
        RC_OK);
    check_exactly(p, seed, on_y, wanted, n);
}

/* A row gets its token's row of the table, to the bit. */
static void tokens_get_their_rows(bool is_bf16, uint64_t seed)
{
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        struct parity *p = parity_begin(is_bf16, seed);
        check_forward(p, seed, &shapes[i], 0);
        check_forward(p, seed, &shapes[i], 1);
        parity_end(p);
    }
}

/* A token that is none makes its row NaN and no other; on the way back it counts for nothing. */
static void what_is_no_token_is_seen(bool is_bf16, uint64_t seed)
{
    static const float bad[] = {-1.0F, 20.0F, 0.5F, NAN, INFINITY, -INFINITY, 1e20F, 19.5F};
    struct embedding embedding = {.symbols = 20, .width = 12};
    enum { ROWS = 40, N = ROWS * 12, TABLE = 20 * 12 };
    struct parity *p = parity_begin(is_bf16, seed);
    const struct backend_ops *ops = p->device->ops;
    float *tokens = parity_host(p, ROWS * sizeof(*tokens)), *dy = parity_activations(p, N, 1.0);
    float *table = parity_values(p, TABLE, 1.0), *wanted = parity_host(p, N * sizeof(*wanted));
    float *on_table = parity_put_values(p, table, TABLE), *on_y = parity_room(p, N), *on_tokens;

    for (size_t r = 0; r < ROWS; r++) {
        bool is_bad = rng_below(&p->rng, 3) == 0;
        uint64_t token = rng_below(&p->rng, embedding.symbols);
        tokens[r] = is_bad ? bad[rng_below(&p->rng, ARRAY_COUNT(bad))] : (float)token;
        for (size_t c = 0; c < embedding.width; c++) {
            wanted[r * embedding.width + c] = is_bad ? NAN : table[token * embedding.width + c];
        }
    }
    on_tokens = parity_put_values(p, tokens, ROWS);
    parity_ok(p, ops->embedding_forward(p->device, &embedding, ROWS, on_tokens, on_table, on_y));
    check_exactly(p, seed, on_y, wanted, N);
    parity_ok(p, ops->embedding_backward(p->device, &embedding, ROWS, on_tokens,
                                         parity_put_activations(p, dy, N), on_table));
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < embedding.width && !isnan(wanted[r * embedding.width]); c++) {
            table[(size_t)tokens[r] * embedding.width + c] += dy[r * embedding.width + c];
        }
    }
    parity_check_values(p, seed, "table", on_table, table, TABLE, 1e-6, 1e-6);
    parity_end(p);
}

static void check_backward(struct parity *p, uint64_t seed, const struct shape *shape,
                           size_t offset)
{
    const struct backend_ops *ops = p->device->ops;
    struct embedding embedding = {.symbols = shape->symbols, .width = shape->width};
    size_t rows = shape->rows, n = rows * shape->width;
    size_t table_n = (size_t)shape->symbols * shape->width;
    float *tokens = tokens_create(p, shape), *table = parity_values(p, table_n, 1.0);
    float *dy = parity_activations(p, n, 1.0), *on_tokens = parity_put_values(p, tokens, rows);
    float *on_dy = put_activations_at(p, dy, n, offset);
    float *on_table = put_values_at(p, table, table_n, offset);
    float *twin = put_values_at(p, table, table_n, offset);
    const float *got, *again;

    parity_ok(p, ops->embedding_backward(p->device, &embedding, rows, on_tokens, on_dy, on_table));
    parity_ok(p, ops->embedding_backward(p->device, &embedding, rows, on_tokens, on_dy, twin));
    assert_int_equal(p->host->ops->embedding_backward(p->host, &embedding, rows, tokens, dy, table),
                     RC_OK);
    parity_check_values(p, seed, "table", on_table, table, table_n, 2e-6, 2e-6);
    got = parity_get_values(p, on_table, table_n);
    again = parity_get_values(p, twin, table_n);
    check_seed(seed, memcmp(got, again, table_n * sizeof(*got)) == 0);
}

/* Gradients of a token's rows are added to its row of the table, however often it occurs; equal
 * calls give equal bits. */
static void gradients_gather_at_their_tokens(bool is_bf16, uint64_t seed)
{
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        struct parity *p = parity_begin(is_bf16, seed);
        check_backward(p, seed, &shapes[i], 0);
        check_backward(p, seed, &shapes[i], 1);
        parity_end(p);
    }
}

/* Long batches go through in panels, and their tables are right as well. */
static void long_batches_gather_as_well(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);

    check_backward(p, seed, &large_shapes[seed % ARRAY_COUNT(large_shapes)], 0);
    parity_end(p);
}

/* Whole numbers are added without an error: each gradient arrives exactly once. */
static void every_row_is_counted_once(bool is_bf16, uint64_t seed)
{
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        struct parity *p = parity_begin(is_bf16, seed);
        struct embedding embedding = {.symbols = shapes[i].symbols, .width = shapes[i].width};
        size_t width = embedding.width, n = shapes[i].rows * width;
        size_t table_n = embedding.symbols * width;
        float *tokens = tokens_create(p, &shapes[i]), *dy = parity_host(p, n * sizeof(*dy));
        float *table = parity_host(p, table_n * sizeof(*table)), *on_table;
        const float *got;

        for (size_t v = 0; v < n; v++) {
            dy[v] = (float)rng_below(&p->rng, 100);
        }
        memset(table, 0, table_n * sizeof(*table));
        on_table = parity_put_values(p, table, table_n);
        parity_ok(p,
                  p->device->ops->embedding_backward(p->device, &embedding, shapes[i].rows,
                                                     parity_put_values(p, tokens, shapes[i].rows),
                                                     parity_put_activations(p, dy, n), on_table));
        for (size_t v = 0; v < n; v++) {
            table[(size_t)tokens[v / width] * width + v % width] += dy[v];
        }
        got = parity_get_values(p, on_table, table_n);
        check_seed(seed, memcmp(got, table, table_n * sizeof(*got)) == 0);
        p->checks++;
        parity_end(p);
    }
}

static void check_positions(struct parity *p, uint64_t seed, const struct positions *positions,
                            size_t offset)
{
    const struct backend_ops *ops = p->device->ops;
    size_t span = (size_t)positions->steps * positions->width, n = positions->samples * span;
    float *x = parity_activations(p, n, 1.0), *table = parity_values(p, span, 1.0);
    float *wanted = parity_host(p, n * sizeof(*wanted));
    float *on_x = put_activations_at(p, x, n, offset), *on_y = parity_room(p, n);
    float *on_table = put_values_at(p, table, span, offset);

    parity_ok(p, ops->positions_forward(p->device, positions, on_x, on_table, on_y));
    assert_int_equal(p->host->ops->positions_forward(p->host, positions, x, table, wanted), RC_OK);
    check_exactly(p, seed, on_y, wanted, n);
    parity_ok(p, ops->positions_backward(p->device, positions, on_x, on_table));
    assert_int_equal(p->host->ops->positions_backward(p->host, positions, x, table), RC_OK);
    parity_check_values(p, seed, "table of positions", on_table, table, span, 1e-6, 1e-6);
    table = parity_get_values(p, on_table, span);
    parity_ok(p, ops->positions_forward(p->device, positions, on_x, on_table, on_x));
    assert_int_equal(p->host->ops->positions_forward(p->host, positions, x, table, wanted), RC_OK);
    check_exactly(p, seed, on_x, wanted, n);
}

/* Positions are added to every sample, in place or not, and get the sum of the samples' gradients.
 */
static void positions_are_those_of_the_twin(bool is_bf16, uint64_t seed)
{
    static const struct positions all[] = {{1, 1, 1},   {3, 7, 5},    {4, 16, 24},
                                           {70, 3, 10}, {2, 100, 64}, {300, 2, 8}};

    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        struct parity *p = parity_begin(is_bf16, seed);
        check_positions(p, seed, &all[i], 0);
        check_positions(p, seed, &all[i], 1);
        parity_end(p);
    }
}

PARITY_TEST(tokens_get_their_rows)
PARITY_TEST(what_is_no_token_is_seen)
PARITY_TEST(gradients_gather_at_their_tokens)
PARITY_TEST(long_batches_gather_as_well)
PARITY_TEST(every_row_is_counted_once)
PARITY_TEST(positions_are_those_of_the_twin)

static const struct CMUnitTest tests[] = {
    PARITY_BOTH(tokens_get_their_rows),
    PARITY_BOTH(what_is_no_token_is_seen),
    PARITY_BOTH(gradients_gather_at_their_tokens),
    PARITY_BOTH(long_batches_gather_as_well),
    PARITY_BOTH(every_row_is_counted_once),
    PARITY_BOTH(positions_are_those_of_the_twin),
};

PARITY_MAIN("sequence", tests)
