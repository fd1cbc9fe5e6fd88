/*
 * The thread that makes batches ahead of time, through the shard that uses it: the same batches to
 * the bit, the same positions, whatever happens in between. Also runs under the thread sanitizer.
 */
#include "tests/check.h"

#include "base/mem.h"
#include "replica/data/prefetch.h"
#include "replica/data/shard.h"

enum { ROWS = 100 };

static struct dataset *digits(void)
{
    struct dataset *dataset = NULL;

    assert_int_equal(dataset_open("digits", &(struct dataset_options){.seed = 1}, &dataset, NULL),
                     RC_OK);
    return dataset;
}

static struct shard *share_of(struct dataset *dataset, bool with_prefetch, bool is_fixed)
{
    struct shard_options options = {.seed = 1,
                                    .stream_seed = 2,
                                    .batch = ROWS,
                                    .augment = {.crop = 1, .flip = true},
                                    .with_prefetch = with_prefetch};
    struct shard *shard = NULL;
    struct fault why = {""};

    assert_int_equal(shard_spec_parse("iid", is_fixed ? "1/3" : NULL, &options.shard, &why), RC_OK);
    if (shard_create(dataset, &options, &shard, &why) != RC_OK) fail_msg("%s", why.text);
    return shard;
}

/* The next batches of both are equal, and so are their positions. */
static void check_steps(struct shard *a, struct shard *b, struct batch *x, struct batch *y, int n)
{
    for (int i = 0; i < n; i++) {
        uint64_t here[SHARD_STATE_WORDS], there[SHARD_STATE_WORDS];
        assert_int_equal(shard_batch(a, x), RC_OK);
        assert_int_equal(shard_batch(b, y), RC_OK);
        assert_int_equal(x->rows, ROWS);
        assert_memory_equal(x->values, y->values, ROWS * 64 * sizeof(float));
        assert_memory_equal(x->labels, y->labels, ROWS * sizeof(uint32_t));
        shard_save(a, here);
        shard_save(b, there);
        assert_memory_equal(here, there, sizeof here);
    }
}

static struct peer_id peer(uint8_t number)
{
    return (struct peer_id){{number, 9, 4}};
}

/* With a thread and without, batches and positions are the same over many epochs (a shard has 5
 * batches), through changes of the shard and through a saved position. */
static void batches_made_ahead_are_the_same(void **state)
{
    const struct peer_id members[] = {peer(1), peer(2), peer(3)};
    struct dataset *dataset = digits();
    struct shard *ahead = share_of(dataset, true, false), *here = share_of(dataset, false, false);
    struct batch x, y;
    uint64_t words[SHARD_STATE_WORDS];

    (void)state;
    assert_int_equal(batch_init(&x, dataset_info(dataset), ROWS), RC_OK);
    assert_int_equal(batch_init(&y, dataset_info(dataset), ROWS), RC_OK);
    for (size_t count = 1; count <= 3; count++) {
        assert_int_equal(shard_reshard(ahead, peer(1), members, count, NULL), RC_OK);
        assert_int_equal(shard_reshard(here, peer(1), members, count, NULL), RC_OK);
        check_steps(ahead, here, &x, &y, 23 + (int)count);
    }
    shard_save(ahead, words);
    check_steps(ahead, here, &x, &y, 9);
    assert_true(shard_load(ahead, words));
    assert_true(shard_load(here, words));
    check_steps(ahead, here, &x, &y, 30);
    batch_deinit(&x);
    batch_deinit(&y);
    shard_destroy(ahead);
    shard_destroy(here);
    dataset_close(dataset);
}

/* A saved position is where the last batch taken ended, not what was made ahead: a fresh shard goes
 * on from there, at any point of an epoch. */
static void a_saved_position_is_of_what_was_used(void **state)
{
    struct dataset *dataset = digits();
    struct batch x, y;

    (void)state;
    assert_int_equal(batch_init(&x, dataset_info(dataset), ROWS), RC_OK);
    assert_int_equal(batch_init(&y, dataset_info(dataset), ROWS), RC_OK);
    for (int steps = 0; steps < 12; steps++) {
        struct shard *first = share_of(dataset, true, true);
        struct shard *second = share_of(dataset, steps % 2 == 0, true);
        uint64_t words[SHARD_STATE_WORDS];

        for (int i = 0; i < steps; i++) {
            assert_int_equal(shard_batch(first, &x), RC_OK);
        }
        shard_save(first, words);
        assert_true(shard_load(second, words));
        check_steps(first, second, &x, &y, 12);
        shard_destroy(first);
        shard_destroy(second);
    }
    batch_deinit(&x);
    batch_deinit(&y);
    dataset_close(dataset);
}

/* Orders that nobody takes are forgotten by a drain, and a thread that has orders left still ends.
 */
static void orders_can_be_left_behind(void **state)
{
    struct dataset *dataset = digits();
    const struct augment nothing = {0};
    struct samples samples = {0};
    struct prefetch *prefetch = NULL;
    struct prefetch_options options = {&samples, dataset_info(dataset), &nothing, 2};
    struct batch batch;

    (void)state;
    assert_int_equal(batch_init(&batch, dataset_info(dataset), 2), RC_OK);
    assert_int_equal(dataset_load_test(dataset, 10, &samples, NULL), RC_OK);
    assert_int_equal(prefetch_create(&options, &prefetch, NULL), RC_OK);
    assert_int_equal(prefetch_outstanding(prefetch), 0);
    prefetch_drain(prefetch);
    for (uint32_t i = 0; i < 4; i++) {
        prefetch_next(prefetch)->picked[0] = i;
        prefetch_next(prefetch)->picked[1] = i + 1;
        assert_null(prefetch_next(prefetch)->keys);
        prefetch_submit(prefetch);
        if (i == 0) {
            prefetch_drain(prefetch);
            assert_int_equal(prefetch_outstanding(prefetch), 0);
        } else if (i == 1) {
            prefetch_take(prefetch, &batch);
            assert_int_equal(batch.labels[0], samples.small_labels[1]);
            assert_int_equal(batch.labels[1], samples.small_labels[2]);
        }
    }
    assert_int_equal(prefetch_outstanding(prefetch), PREFETCH_DEPTH);
    prefetch_destroy(prefetch);
    prefetch_destroy(NULL);
    batch_deinit(&batch);
    samples_deinit(&samples);
    dataset_close(dataset);
}

/* On is on and off is off; auto wants a processor to spare and batches that take a while. */
static void auto_is_on_where_it_pays(void **state)
{
    const struct augment nothing = {0}, flip = {.flip = true};
    const struct dataset_info small = {.channels = 1, .height = 28, .width = 28};
    const struct dataset_info large = {.channels = 3, .height = 224, .width = 224};
    enum prefetch_mode mode;

    (void)state;
    assert_true(prefetch_parse("auto", &mode) && mode == PREFETCH_AUTO);
    assert_true(prefetch_parse("on", &mode) && mode == PREFETCH_ON);
    assert_true(prefetch_parse("off", &mode) && mode == PREFETCH_OFF);
    assert_false(prefetch_parse("no", &mode));
    assert_true(prefetch_is_useful(PREFETCH_ON, &small, 1, &nothing, 1000));
    assert_false(prefetch_is_useful(PREFETCH_OFF, &large, 1024, &flip, 0));
    assert_false(prefetch_is_useful(PREFETCH_AUTO, &small, 64, &nothing, 0));
    assert_true(prefetch_is_useful(PREFETCH_AUTO, &large, 64, &nothing, 0));
    assert_true(prefetch_is_useful(PREFETCH_AUTO, &small, 512, &flip, 0));
    assert_false(prefetch_is_useful(PREFETCH_AUTO, &large, 64, &nothing, 100000));
}

/* Each failed allocation is reported, and nothing leaks. */
static void short_memory_is_reported(void **state)
{
    struct dataset *dataset = digits();
    uint64_t before = mem_blocks();
    bool is_done[2] = {false, false};

    (void)state;
    for (uint64_t n = 0; n < 20; n++) {
        for (int with_prefetch = 0; with_prefetch < 2; with_prefetch++) {
            struct shard_options options = {.seed = 1,
                                            .stream_seed = 2,
                                            .batch = ROWS,
                                            .augment = {.flip = true},
                                            .with_prefetch = with_prefetch == 1};
            struct shard *shard = NULL;
            enum rc rc;

            mem_fail_after(n);
            rc = shard_create(dataset, &options, &shard, NULL);
            mem_fail_after(UINT64_MAX);
            assert_true(rc == RC_OK || rc == RC_NOMEM);
            is_done[with_prefetch] = rc == RC_OK;
            shard_destroy(shard);
            assert_int_equal(mem_blocks(), before);
        }
    }
    assert_true(is_done[0] && is_done[1]);
    dataset_close(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_made_ahead_are_the_same),
        cmocka_unit_test(a_saved_position_is_of_what_was_used),
        cmocka_unit_test(orders_can_be_left_behind),
        cmocka_unit_test(auto_is_on_where_it_pays),
        cmocka_unit_test(short_memory_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
