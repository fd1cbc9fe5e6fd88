/* What every exchange must do, run on all of them; the protocols' own properties are in
 * tests/property. */
#include "tests/check.h"

#include "averaging/core/exchange.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/rng.h"

enum { CHUNKS = 5 };

static const struct exchange_ops *const exchanges[] = {
    &exchange_pair, &exchange_group, &exchange_edges, &exchange_push, &exchange_mirror};

#define FOR_EACH_EXCHANGE(ops)                                                                     \
    for (size_t which = 0; which < 4 && ((ops) = exchanges[which], true); which++)

static struct peer_id id_of(uint8_t number)
{
    return (struct peer_id){{number}};
}

static struct boot_id boot_of(uint8_t number)
{
    return (struct boot_id){{number, 1}};
}

static struct exchange *start(const struct exchange_ops *ops, uint8_t number, struct commands *out)
{
    struct exchange_options options = {
        .self = id_of(number), .boot = boot_of(number), .chunks = CHUNKS, .codec = "f32"};
    struct exchange *exchange = ops->create(&options);
    struct digest lineage = {{9}};

    assert_non_null(exchange);
    assert_ptr_equal(exchange->ops, ops);
    commands_init(out);
    ops->set_lineage(exchange, lineage, out);
    assert_int_equal(out->count, 0);
    return exchange;
}

static struct round_members two_members(const struct exchange_ops *ops)
{
    static struct peer_id ids[2];
    static struct boot_id boots[2];
    static const float half = 0.5f;

    for (uint8_t i = 0; i < 2; i++) {
        ids[i] = id_of((uint8_t)(i + 1));
        boots[i] = boot_of((uint8_t)(i + 1));
    }
    if (ops->is_group) return (struct round_members){.ids = ids, .boots = boots, .count = 2};
    return (struct round_members){/* peer 1 offers to peer 2 */
                                  .ids = ids + 1,
                                  .boots = boots + 1,
                                  .count = 1,
                                  .weights = &half};
}

static const struct command *find(const struct commands *out, enum command_type type)
{
    for (uint32_t i = 0; i < out->count; i++) {
        if (out->items[i].type == type) return &out->items[i];
    }
    return NULL;
}

static void nothing_is_begun_alone_or_without_a_model(void **state)
{
    (void)state;
    /* RC_NOT_FOUND, nothing sent, nothing counted, nothing pending. */
    const struct exchange_ops *ops;

    FOR_EACH_EXCHANGE(ops)
    {
        struct commands out;
        struct exchange *exchange = start(ops, 1, &out);
        struct round_members members = two_members(ops);
        struct exchange_counts counts;
        struct digest none = {{0}};

        members.count = ops->is_group ? 1 : 0;
        assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_NOT_FOUND);
        members = two_members(ops);
        ops->set_lineage(exchange, none, &out);
        assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_NOT_FOUND);
        assert_int_equal(out.count, 0);
        assert_false(exchange_is_active(exchange));
        assert_true(ops->next_ns(exchange) == UINT64_MAX);
        ops->counts(exchange, &counts);
        assert_int_equal(counts.rounds_aborted + counts.rounds_skipped, 0);
        ops->destroy(exchange);
        ops->destroy(NULL);
        commands_deinit(&out);
    }
}

static void one_round_at_a_time_and_it_ends_by_itself(void **state)
{
    (void)state;
    /* A second begin is RC_BUSY; with a partner that never answers time alone ends the round. */
    const struct exchange_ops *ops;

    FOR_EACH_EXCHANGE(ops)
    {
        struct commands out;
        struct exchange *exchange = start(ops, 1, &out);
        struct round_members members = two_members(ops);
        const struct command *over = NULL;

        assert_int_equal(ops->begin(exchange, &members, 0, 1, &out), RC_OK);
        assert_non_null(find(&out, COMMAND_SEND));
        assert_true(exchange_is_active(exchange));
        assert_int_equal(ops->begin(exchange, &members, 0, 2, &out), RC_BUSY);
        for (int i = 0; i < 100 && over == NULL; i++) {
            assert_true(ops->next_ns(exchange) != UINT64_MAX);
            commands_clear(&out);
            ops->tick(exchange, ops->next_ns(exchange), &out);
            over = find(&out, COMMAND_OVER);
        }
        assert_non_null(over);
        assert_int_equal(over->over.result, OVER_ABORTED);
        assert_non_null(over->over.reason);
        assert_false(exchange_is_active(exchange));
        ops->destroy(exchange);
        commands_deinit(&out);
    }
}

static void cancelling_or_another_model_ends_what_runs(void **state)
{
    (void)state;
    /* cancel() and set_lineage() abort the round with a reason; idle they do nothing. */
    const struct exchange_ops *ops;

    FOR_EACH_EXCHANGE(ops)
    {
        struct commands out;
        struct exchange *exchange = start(ops, 1, &out);
        struct round_members members = two_members(ops);
        struct digest other = {{8}};
        struct exchange_counts counts;

        ops->cancel(exchange, "stopping", 1, &out);
        assert_int_equal(out.count, 0);
        for (int pass = 0; pass < 2; pass++) {
            commands_clear(&out);
            assert_int_equal(ops->begin(exchange, &members, 0, 2, &out), RC_OK);
            commands_clear(&out);
            if (pass == 0) {
                ops->cancel(exchange, "stopping", 3, &out);
            } else {
                ops->set_lineage(exchange, other, &out);
            }
            assert_int_equal(find(&out, COMMAND_OVER)->over.result, OVER_ABORTED);
            assert_false(exchange_is_active(exchange));
        }
        ops->counts(exchange, &counts);
        assert_int_equal(counts.rounds_aborted, 2);
        ops->destroy(exchange);
        commands_deinit(&out);
    }
}

static void messages_that_fit_no_state_are_refused(void **state)
{
    (void)state;
    /* Every type at an idle machine, zeroed and random: an RC, no crash, still idle and usable. */
    const struct exchange_ops *ops;

    FOR_EACH_EXCHANGE(ops)
    {
        struct commands out;
        struct exchange *exchange = start(ops, 1, &out);
        struct round_members members = two_members(ops);
        struct chunk_ref chunk = {id_of(2), DATA_OFFER, 0, 0};
        struct chunk_use use = {.weight = -1};
        struct rng rng;

        rng_init(&rng, 5, 0);
        for (int type = 0; type < 130; type++) {
            struct message message;

            memset(&message, 0, sizeof message);
            message.type = (enum message_type)type;
            assert_int_not_equal(ops->on_message(exchange, id_of(2), boot_of(2), &message, 1, &out),
                                 RC_OK);
            message.as.form.round = rng_u64(&rng);
            message.as.form.members_count = 2;
            assert_int_not_equal(ops->on_message(exchange, id_of(2), boot_of(2), &message, 1, &out),
                                 RC_OK);
            assert_int_equal(ops->on_message(exchange, id_of(1), boot_of(1), &message, 1, &out),
                             RC_FORMAT); /* from ourselves */
        }
        assert_null(find(&out, COMMAND_SNAPSHOT));
        assert_null(find(&out, COMMAND_OVER));
        for (uint32_t kind = 0; kind < 3; kind++) {
            chunk.kind = (enum data_kind)kind;
            assert_int_equal(ops->on_chunk(exchange, &chunk, &use), RC_STALE);
        }
        assert_true(use.weight < 0);
        commands_clear(&out);
        ops->on_chunk_checked(exchange, &chunk, RC_NONFINITE, (struct digest){{0}}, 0, 1, &out);
        ops->on_job_done(exchange, JOB_REDUCE, 7, RC_OK, (struct digest){{0}}, 1, &out);
        ops->on_link_lost(exchange, id_of(77), 1, &out);
        assert_int_equal(out.count, 0);
        assert_false(exchange_is_active(exchange));
        assert_int_equal(ops->begin(exchange, &members, 0, 2, &out), RC_OK);
        ops->destroy(exchange);
        commands_deinit(&out);
    }
}

static void another_model_or_codec_never_mixes(void **state)
{
    (void)state;
    /* Each of schema, lineage, codec and chunk count alone keeps two peers apart. */
    const struct exchange_ops *ops;

    FOR_EACH_EXCHANGE(ops)
    {
        for (int what = 0; what < 5; what++) {
            struct commands out, ignored;
            struct exchange *one = start(ops, 1, &out), *two = start(ops, 2, &ignored);
            struct round_members members = two_members(ops);
            struct message message;
            enum rc rc;

            assert_int_equal(ops->begin(one, &members, 0, 1, &out), RC_OK);
            message = find(&out, COMMAND_SEND)->message;
            if (ops->is_group) {
                message.as.form.schema.bytes[0] ^= what == 0;
                message.as.form.lineage.bytes[0] ^= what == 1;
                message.as.form.codec[0] ^= what == 2;
                message.as.form.chunks += what == 3;
            } else if (ops->is_graph) {
                message.as.edge_open.schema.bytes[0] ^= what == 0;
                message.as.edge_open.lineage.bytes[0] ^= what == 1;
                message.as.edge_open.codec[0] ^= what == 2;
                message.as.edge_open.chunks += what == 3;
            } else if (ops == &exchange_push) {
                message.as.share.schema.bytes[0] ^= what == 0;
                message.as.share.lineage.bytes[0] ^= what == 1;
                message.as.share.codec[0] ^= what == 2;
                message.as.share.chunks += what == 3;
            } else {
                message.as.offer.schema.bytes[0] ^= what == 0;
                message.as.offer.lineage.bytes[0] ^= what == 1;
                message.as.offer.codec[0] ^= what == 2;
                message.as.offer.chunks += what == 3;
            }
            rc = ops->on_message(two, id_of(1), boot_of(1), &message, 1, &ignored);
            assert_int_equal(rc, what == 4 ? RC_OK : RC_MISMATCH);
            assert_int_equal(exchange_is_active(two),
                             what == 4 && !ops->is_group && !ops->is_graph);
            ops->destroy(one);
            ops->destroy(two);
            commands_deinit(&out);
            commands_deinit(&ignored);
        }
    }
}

static void saved_bytes_load_and_others_are_refused(void **state)
{
    (void)state;
    /* save gives what load takes; every shorter or longer string is RC_FORMAT. */
    const struct exchange_ops *ops;

    FOR_EACH_EXCHANGE(ops)
    {
        struct commands out;
        struct exchange *exchange = start(ops, 1, &out);
        struct exchange_counts counts;
        uint8_t *bytes = NULL;
        uint8_t copy[256] = {0};
        size_t count = 0;

        if (ops->set_round != NULL) ops->set_round(exchange, 41);
        assert_int_equal(ops->save(exchange, &bytes, &count), RC_OK);
        assert_true(count < sizeof copy);
        memcpy(copy, bytes, count);
        mem_free(bytes);
        mem_fail_after(0);
        assert_int_equal(ops->save(exchange, &bytes, &count), RC_NOMEM);
        mem_fail_after(UINT64_MAX);
        ops->destroy(exchange);
        commands_deinit(&out);
        exchange = start(ops, 1, &out);
        for (size_t n = 0; n < sizeof copy; n++) {
            assert_int_equal(ops->load(exchange, copy, n), n == count ? RC_OK : RC_FORMAT);
        }
        copy[0] ^= 0x80; /* the version */
        assert_int_equal(ops->load(exchange, copy, count), RC_FORMAT);
        ops->counts(exchange, &counts);
        assert_int_equal(counts.next_round, ops->is_group || ops->is_graph ? 41 : 0);
        ops->destroy(exchange);
        commands_deinit(&out);
    }
}

static void short_memory_gives_no_exchange(void **state)
{
    (void)state;
    /* The n-th allocation failed in turn: NULL, nothing leaked. */
    struct exchange_options options = {.chunks = CHUNKS};
    const struct exchange_ops *ops;

    FOR_EACH_EXCHANGE(ops)
    {
        struct exchange *exchange = NULL;
        uint64_t before = mem_blocks();

        for (uint64_t n = 0; exchange == NULL; n++) {
            mem_fail_after(n);
            exchange = ops->create(&options);
            mem_fail_after(UINT64_MAX);
            if (exchange == NULL) assert_int_equal(mem_blocks(), before);
            assert_true(n < 20);
        }
        ops->destroy(exchange);
        assert_int_equal(mem_blocks(), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_begun_alone_or_without_a_model),
        cmocka_unit_test(one_round_at_a_time_and_it_ends_by_itself),
        cmocka_unit_test(cancelling_or_another_model_ends_what_runs),
        cmocka_unit_test(messages_that_fit_no_state_are_refused),
        cmocka_unit_test(another_model_or_codec_never_mixes),
        cmocka_unit_test(saved_bytes_load_and_others_are_refused),
        cmocka_unit_test(short_memory_gives_no_exchange),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
