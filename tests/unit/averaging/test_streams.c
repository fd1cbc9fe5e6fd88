/* Chunks and CREDIT of one round never count in another, though counters and rounds are alike. */
#include "tests/unit/averaging/steps.h"

#include <stdlib.h>

enum { CHUNKS = 2, OURS = 1, OTHER = 2 };

static enum rc arrives(struct exchange *exchange, uint64_t stream)
{
    struct chunk_ref chunk = {.from = id_of(OTHER), .kind = DATA_OFFER, .stream = stream};
    struct chunk_use use;

    return exchange->ops->on_chunk(exchange, &chunk, &use);
}

static enum rc allowed(struct exchange *exchange, uint64_t stream, struct commands *out)
{
    struct message message = {.type = MESSAGE_CREDIT};

    message.as.credit.stream = stream;
    message.as.credit.chunks = 1;
    return exchange->ops->on_message(exchange, id_of(OTHER), boot_of(OTHER), &message, 3, out);
}

/* We offered our first and gave it up; the other offers its first. */
static void a_chunk_of_an_aborted_pair_round_is_not_staged_in_the_next(void **state)
{
    const struct exchange_ops *ops = &exchange_pair;
    struct commands out;
    struct exchange *exchange = start(ops, OURS, CHUNKS, &out);
    struct peer_id other = id_of(OTHER);
    struct boot_id boot = boot_of(OTHER);
    struct round_members members = {.ids = &other, .boots = &boot, .count = 1};
    struct message offer;
    struct round_key first, second;

    (void)state;
    assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_OK);
    offer = *sent(&out, MESSAGE_OFFER);
    first = offer.as.offer.key;
    ops->cancel(exchange, "given up", 2, &out);
    second = (struct round_key){other, boot, first.counter};
    offer.as.offer.key = second;
    assert_int_equal(ops->on_message(exchange, other, boot, &offer, 2, &out), RC_OK);
    ops->on_job_done(exchange, JOB_SNAPSHOT, 0, RC_OK, nothing, 3, &out);
    assert_int_equal(arrives(exchange, exchange_stream(&first)), RC_STALE);
    assert_int_equal(allowed(exchange, exchange_stream(&first), &out), RC_STALE);
    assert_int_equal(arrives(exchange, exchange_stream(&second)), RC_OK); /* not RC_REPLAY */
    assert_int_equal(allowed(exchange, exchange_stream(&second), &out), RC_OK);
    ops->destroy(exchange);
    commands_deinit(&out);
}

/* A share of the other's earlier life, and one of 65,536 shares ago. */
static void a_chunk_of_another_share_is_not_staged(void **state)
{
    const struct exchange_ops *ops = &exchange_push;
    struct commands out;
    struct exchange *exchange = start(ops, OURS, CHUNKS, &out);
    struct message share = {.type = MESSAGE_SHARE};
    struct round_key key = {id_of(OTHER), boot_of(OTHER), 70000};
    struct round_key before = {id_of(OTHER), boot_of(3), 70000};
    struct round_key long_ago = {id_of(OTHER), boot_of(OTHER), 70000 - 65536};

    (void)state;
    share.as.share.key = key;
    share.as.share.lineage = (struct digest){{9}};
    share.as.share.chunks = CHUNKS;
    share.as.share.weight = 0.5f;
    assert_int_equal(ops->on_message(exchange, id_of(OTHER), boot_of(OTHER), &share, 1, &out),
                     RC_OK);
    ops->on_job_done(exchange, JOB_SNAPSHOT, 0, RC_OK, nothing, 2, &out);
    assert_int_equal(arrives(exchange, exchange_stream(&before)), RC_STALE);
    assert_int_equal(arrives(exchange, exchange_stream(&long_ago)), RC_STALE);
    assert_int_equal(arrives(exchange, exchange_stream(&key)), RC_OK);
    ops->destroy(exchange);
    commands_deinit(&out);
}

static void a_chunk_of_another_round_of_neighbours_is_not_staged(void **state)
{
    enum { ROUND = 70000 };
    const struct exchange_ops *ops = &exchange_edges;
    struct commands out;
    struct exchange *exchange = start(ops, OURS, CHUNKS, &out);
    struct peer_id other = id_of(OTHER);
    struct boot_id boot = boot_of(OTHER);
    float weight = 0.5f;
    struct round_members members = {.ids = &other, .boots = &boot, .count = 1, .weights = &weight};
    struct message open = {.type = MESSAGE_EDGE_OPEN};
    struct round_key key = {other, boot, ROUND};

    (void)state;
    ops->on_link_up(exchange, other, boot, 1, &out);
    open.as.edge_open.round = ROUND;
    open.as.edge_open.weight = weight;
    open.as.edge_open.chunks = CHUNKS;
    open.as.edge_open.lineage = (struct digest){{9}};
    assert_int_equal(ops->on_message(exchange, other, boot, &open, 1, &out), RC_OK);
    assert_int_equal(ops->begin(exchange, &members, 0, 2, &out), RC_OK);
    ops->on_job_done(exchange, JOB_SNAPSHOT, 0, RC_OK, nothing, 3, &out);
    for (int i = 0; i < 2; i++) { /* another round; another life */
        struct round_key late = key;

        late.counter -= i == 0 ? 65536 : 0;
        if (i == 1) late.boot = boot_of(3);
        assert_int_equal(arrives(exchange, exchange_stream(&late)), RC_STALE);
    }
    assert_int_equal(arrives(exchange, exchange_stream(&key)), RC_OK);
    assert_int_equal(allowed(exchange, exchange_stream(&key), &out), RC_STALE); /* its own name */
    key = (struct round_key){id_of(OURS), boot_of(OURS), ROUND};
    assert_int_equal(allowed(exchange, exchange_stream(&key), &out), RC_OK);
    ops->destroy(exchange);
    commands_deinit(&out);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* And all of it travels. */
static void keys_of_many_rounds_have_many_names(void **state)
{
    enum { KEYS = 20000 };
    static uint64_t names[KEYS];

    (void)state;
    for (uint32_t i = 0; i < KEYS; i++) {
        struct round_key key = {id_of((uint8_t)(i % 4)), boot_of((uint8_t)(i / 4 % 4)), i / 16};
        struct inner_header header = {.type = MESSAGE_DATA}, back;
        uint8_t bytes[INNER_HEADER_BYTES];

        names[i] = exchange_stream(&key);
        assert_true(names[i] <= STREAM_MAX);
        inner_header_set_stream(&header, names[i]);
        inner_header_encode(&header, bytes);
        assert_int_equal(inner_header_decode(bytes, sizeof bytes, &back), RC_OK);
        assert_true(inner_header_stream(&back) == names[i]);
    }
    qsort(names, KEYS, sizeof names[0], compare);
    for (uint32_t i = 1; i < KEYS; i++) {
        assert_true(names[i] != names[i - 1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_of_an_aborted_pair_round_is_not_staged_in_the_next),
        cmocka_unit_test(a_chunk_of_another_share_is_not_staged),
        cmocka_unit_test(a_chunk_of_another_round_of_neighbours_is_not_staged),
        cmocka_unit_test(keys_of_many_rounds_have_many_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
