/* Which values a round carries (averaging/codec/mask.h). */
#include "tests/check.h"

#include "averaging/codec/mask.h"
#include "averaging/rule/rule.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "gossip/wire/limits.h"

#include <string.h>

enum { LAYERS = 9, PARAMETERS = 100000, STATISTICS = 700, VALUES = PARAMETERS + STATISTICS };

/* Unlike layers, one of which is larger than a fragment of four. */
static const size_t ends[LAYERS] = {500, 600, 5000, 9000, 60000, 62000, 62010, 90000, PARAMETERS};

static struct masks *make(uint32_t fragments, uint32_t slots, uint64_t seed)
{
    const struct masks_options options = {.values = VALUES,
                                          .parameters = PARAMETERS,
                                          .ends = ends,
                                          .ends_count = LAYERS,
                                          .fragments = fragments,
                                          .slots = slots,
                                          .seed = seed};
    struct masks *masks = masks_create(&options);

    assert_non_null(masks);
    return masks;
}

enum { HEAD = PARAMETERS + STATISTICS, FIRST = 3, SECOND = 6 };

/* The model, then as many first moments as it has parameters, then twice as many others. */
static struct masks *make_tails(void)
{
    const struct masks_options options = {.values = HEAD + 3 * PARAMETERS,
                                          .parameters = PARAMETERS,
                                          .tails = {{PARAMETERS, FIRST}, {2 * PARAMETERS, SECOND}},
                                          .tails_count = 2};
    struct masks *masks = masks_create(&options);

    assert_non_null(masks);
    return masks;
}

/* How often each value was carried in rounds [first, first + rounds). */
static void count(const struct masks *masks, uint64_t origin, uint64_t first, uint32_t rounds,
                  uint32_t *times)
{
    float *whole = mem_array(VALUES, sizeof *whole);

    memset(times, 0, VALUES * sizeof *times);
    for (uint64_t r = first; r < first + rounds; r++) {
        memset(whole, 0, VALUES * sizeof *whole);
        masks_fill(masks, masks_of(masks, origin, r), 1, whole);
        for (size_t i = 0; i < VALUES; i++) {
            times[i] += whole[i] == 1;
        }
    }
    mem_free(whole);
}

/* Every value is in exactly one fragment, and in exactly one of B rounds of slots. */
static void each_value_is_carried_once(void **state)
{
    (void)state;
    static const struct {
        uint32_t fragments, slots;
    } cases[] = {{2, 0}, {3, 0}, {4, 0}, {16, 0}, {0, 2}, {0, 7}, {0, 200}, {0, 1000}};
    uint32_t *times = mem_array(VALUES, sizeof *times);

    for (size_t c = 0; c < ARRAY_COUNT(cases); c++) {
        uint32_t rounds = cases[c].fragments + cases[c].slots;
        struct masks *masks = make(cases[c].fragments, cases[c].slots, c);

        for (uint64_t cycle = 0; cycle < 3; cycle++) {
            count(masks, 5, cycle * rounds, rounds, times);
            for (size_t i = 0; i < VALUES; i++) {
                assert_int_equal(times[i], 1);
            }
        }
        masks_destroy(masks);
    }
    mem_free(times);
}

/* A layer that is no larger than a fragment lies whole in one, and so do the statistics, also those
 * that slots carry; and no fragment has much more than its share. */
static void what_belongs_together_stays_together(void **state)
{
    (void)state;
    uint32_t *times = mem_array(VALUES, sizeof *times);
    struct masks *masks = make(4, 0, 1);
    size_t sizes[4] = {0};

    for (uint32_t f = 0; f < 4; f++) {
        size_t first = 0;

        count(masks, 0, f, 1, times);
        for (size_t layer = 0; layer < LAYERS; layer++) {
            size_t held = 0;

            for (size_t i = first; i < ends[layer]; i++) {
                held += times[i];
            }
            sizes[f] += held;
            if (ends[layer] - first <= VALUES / 4) {
                assert_true(held == 0 || held == ends[layer] - first);
            }
            first = ends[layer];
        }
        for (size_t i = PARAMETERS; i < VALUES; i++) {
            assert_int_equal(times[i], times[PARAMETERS]);
        }
    }
    for (uint32_t f = 0; f < 4; f++) {
        assert_in_range(sizes[f], VALUES / 8, VALUES / 2);
    }
    masks_destroy(masks);
    masks = make(0, 50, 3);
    for (uint32_t r = 0; r < 50; r++) {
        count(masks, 0, r, 1, times);
        for (size_t i = PARAMETERS; i < VALUES; i++) {
            assert_int_equal(times[i], times[PARAMETERS]);
        }
    }
    masks_destroy(masks);
    mem_free(times);
}

/* Equal layers lie P apart. */
static void equal_layers_are_dealt_out_in_turn(void **state)
{
    (void)state;
    size_t equal[12];
    struct masks_options options = {
        .values = 1200, .parameters = 1200, .ends = equal, .ends_count = 12, .fragments = 4};
    float whole[1200];
    struct masks *masks;

    for (size_t i = 0; i < 12; i++) {
        equal[i] = 100 * (i + 1);
    }
    masks = masks_create(&options);
    for (uint64_t r = 0; r < 4; r++) {
        memset(whole, 0, sizeof whole);
        masks_fill(masks, masks_of(masks, 0, r), 1, whole);
        for (size_t i = 0; i < 1200; i++) {
            assert_true((whole[i] == 1) == (i / 100 % 4 == r));
        }
    }
    masks_destroy(masks);
}

/* What is gathered, wherever it lies, is scattered to where it was, and nothing else is touched. */
static void gather_and_scatter_are_inverse(void **state)
{
    (void)state;
    static const uint32_t kinds[][2] = {{3, 0}, {16, 0}, {0, 3}, {0, 200}};
    float *whole = mem_array(VALUES, sizeof(float)), *back = mem_array(VALUES, sizeof(float));
    float *carried = mem_array(VALUES, sizeof(float));
    struct rng rng;

    rng_init(&rng, 1, 2);
    for (size_t i = 0; i < VALUES; i++) {
        whole[i] = (float)rng_normal(&rng);
    }
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        struct masks *masks = make(kinds[k][0], kinds[k][1], k);
        const size_t splits[] = {0, 1, 777, PARAMETERS, VALUES};
        float *plane = mem_array(masks_values(masks), sizeof(float));
        float *other = mem_array(masks_values(masks), sizeof(float));

        for (uint64_t r = 0; r < 5; r++) {
            struct mask mask = masks_of(masks, 9, r);
            struct mask_layout layout = masks_layout(masks, mask);

            masks_gather(masks, mask, whole, VALUES, NULL, plane);
            for (size_t s = 0; s < ARRAY_COUNT(splits); s++) {
                masks_gather(masks, mask, whole, splits[s], whole, other);
                assert_memory_equal(plane, other, layout.values * sizeof(float));
            }
            for (size_t i = 0; i < VALUES; i++) {
                back[i] = -0.0f;
                carried[i] = 0;
            }
            masks_scatter(masks, mask, plane, back);
            masks_fill(masks, mask, 1, carried);
            for (size_t i = 0; i < VALUES; i++) {
                const float expected = carried[i] == 1 ? whole[i] : -0.0f;

                assert_memory_equal(&back[i], &expected, sizeof(float));
            }
        }
        mem_free(plane);
        mem_free(other);
        masks_destroy(masks);
    }
    mem_free(whole);
    mem_free(back);
    mem_free(carried);
}

/* The model is in every round, at the front of its plane; first moments are in every third, second
 * ones in every sixth. As many chunks in each, none of them empty or too long. */
static void moments_are_carried_in_rounds_of_their_own(void **state)
{
    (void)state;
    struct masks *masks = make_tails();
    const size_t values = HEAD + 3 * PARAMETERS;
    float *whole = mem_array(values, sizeof(float)), *back = mem_array(values, sizeof(float));
    float *plane = mem_array(masks_values(masks), sizeof(float));
    const uint32_t chunks = masks_chunks(masks);

    for (size_t i = 0; i < values; i++) {
        whole[i] = 1 + (float)i;
    }
    for (uint64_t r = 0; r < 14; r++) {
        const struct mask mask = masks_of(masks, 5, r);
        const struct mask_layout layout = masks_layout(masks, mask);
        const bool has_first = r % FIRST == 0, has_second = r % SECOND == 0;

        assert_true(mask.part < masks_parts(masks));
        assert_int_equal(layout.parameters, PARAMETERS);
        assert_int_equal(layout.values,
                         HEAD + (has_first ? PARAMETERS : 0) + (has_second ? 2 * PARAMETERS : 0));
        assert_true(layout.values <= masks_values(masks) && layout.chunk_values <= CHUNK_VALUES);
        assert_int_equal(layout.chunk_values % RULE_GRAIN, 0);
        assert_true(layout.values > (chunks - 1) * layout.chunk_values);
        assert_true(layout.values <= chunks * layout.chunk_values);
        memset(back, 0, values * sizeof(float));
        masks_gather(masks, mask, whole, values, NULL, plane);
        masks_scatter(masks, mask, plane, back);
        assert_memory_equal(plane, whole, HEAD * sizeof(float));
        for (size_t i = 0; i < values; i++) {
            const bool is_carried = i < HEAD || (i < HEAD + PARAMETERS ? has_first : has_second);

            if (back[i] != (is_carried ? whole[i] : 0)) fail_msg("round %d, value %zu", (int)r, i);
        }
    }
    mem_free(plane);
    mem_free(back);
    mem_free(whole);
    masks_destroy(masks);
}

/* The same numbers give the same mask at every member, and after a restart; of another run, of one
 * that begins rounds of its own, or in the next B rounds, it is another one. */
static void masks_follow_from_what_all_know(void **state)
{
    (void)state;
    struct masks *masks = make(0, 20, 7), *again = make(0, 20, 7), *unlike = make(0, 20, 8);
    uint32_t *a = mem_array(VALUES, sizeof *a), *b = mem_array(VALUES, sizeof *b);
    const struct {
        const struct masks *masks;
        uint64_t origin, number;
    } others[] = {{unlike, 3, 45}, {masks, 4, 45}, {masks, 3, 65}};

    count(masks, 3, 45, 1, a);
    count(again, 3, 45, 1, b);
    assert_memory_equal(a, b, VALUES * sizeof *a);
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        size_t both = 0;

        count(others[i].masks, others[i].origin, others[i].number, 1, b);
        for (size_t j = 0; j < PARAMETERS; j++) {
            both += a[j] && b[j];
        }
        assert_in_range(both, 150, 350); /* of 5000 one in 20, give or take 6 deviations */
    }
    mem_free(a);
    mem_free(b);
    masks_destroy(masks);
    masks_destroy(again);
    masks_destroy(unlike);
}

/* No value is carried more often than others at a place in the order, nor together with another
 * one. */
static void slots_are_drawn_evenly(void **state)
{
    (void)state;
    enum { SLOTS = 10, DRAWS = 4000 };
    struct masks *masks = make(0, SLOTS, 11);
    uint32_t seen[SLOTS] = {0}, pairs[SLOTS] = {0};
    float *whole = mem_array(VALUES, sizeof *whole);

    for (uint64_t cycle = 0; cycle < DRAWS / 100; cycle++) {
        memset(whole, 0, VALUES * sizeof *whole);
        masks_fill(masks, masks_of(masks, 0, cycle * SLOTS + 3), 1, whole);
        for (size_t block = 0; block < 100; block++) {
            size_t place = 0, next = 0;

            while (whole[block * SLOTS + place] == 0)
                place++;
            while (whole[(block + 1) * SLOTS + next] == 0)
                next++;
            seen[place]++;
            pairs[(next + SLOTS - place) % SLOTS]++;
        }
    }
    for (size_t i = 0; i < SLOTS; i++) { /* 400, deviation 19 */
        assert_in_range(seen[i], 400 - 100, 400 + 100);
        assert_in_range(pairs[i], 400 - 100, 400 + 100);
    }
    mem_free(whole);
    masks_destroy(masks);
}

/* As many chunks in every round, none of them empty or too long, on the grain of rules. */
static void chunks_are_as_many_in_every_round(void **state)
{
    (void)state;
    for (uint32_t fragments = 1; fragments <= 40; fragments++) {
        FOR_EACH_SEED (slots, 2) {
            bool is_slots = slots == 2;
            struct masks *masks = make(is_slots ? 0 : fragments, is_slots ? fragments : 0, 1);
            uint32_t chunks = masks_chunks(masks);

            for (uint64_t r = 0; r < fragments; r++) {
                struct mask_layout layout = masks_layout(masks, masks_of(masks, 0, r));

                assert_true(layout.values <= masks_values(masks));
                assert_true(layout.parameters <= layout.values);
                assert_true(layout.chunk_values <= CHUNK_VALUES);
                assert_int_equal(layout.chunk_values % RULE_GRAIN, 0);
                assert_true(layout.values > (chunks - 1) * layout.chunk_values);
                assert_true(layout.values <= chunks * layout.chunk_values);
            }
            masks_destroy(masks);
        }
    }
}

/* Fewer values than fragments: some are of nothing, and carry a zero. */
static void a_model_may_be_smaller_than_its_fragments(void **state)
{
    (void)state;
    const size_t end = 3;
    const struct masks_options options = {
        .values = 3, .parameters = 3, .ends = &end, .ends_count = 1, .fragments = 5};
    struct masks *masks = masks_create(&options);
    float whole[3] = {1, 2, 3}, plane[8], sum = 0;

    for (uint64_t r = 0; r < 5; r++) {
        struct mask mask = masks_of(masks, 0, r);

        assert_int_equal(masks_layout(masks, mask).values, 1);
        masks_gather(masks, mask, whole, 3, NULL, plane);
        sum += plane[0];
    }
    assert_true(sum == 6);
    masks_destroy(masks);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    static const uint32_t kinds[][3] = {{4, 0, 0}, {0, 9, 0}, {0, 0, 2}};

    for (size_t kind = 0; kind < ARRAY_COUNT(kinds); kind++) {
        const struct masks_options options = {.values = VALUES,
                                              .parameters = PARAMETERS,
                                              .ends = ends,
                                              .ends_count = LAYERS,
                                              .fragments = kinds[kind][0],
                                              .slots = kinds[kind][1],
                                              .tails = {{300, 3}, {400, 6}},
                                              .tails_count = kinds[kind][2]};
        uint64_t n = 0;

        for (;; n++) {
            struct masks *masks;

            mem_fail_after(n);
            masks = masks_create(&options);
            mem_fail_after(UINT64_MAX);
            masks_destroy(masks);
            if (masks != NULL) break;
        }
        assert_in_range(n, 2, 9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_value_is_carried_once),
        cmocka_unit_test(what_belongs_together_stays_together),
        cmocka_unit_test(moments_are_carried_in_rounds_of_their_own),
        cmocka_unit_test(equal_layers_are_dealt_out_in_turn),
        cmocka_unit_test(gather_and_scatter_are_inverse),
        cmocka_unit_test(masks_follow_from_what_all_know),
        cmocka_unit_test(slots_are_drawn_evenly),
        cmocka_unit_test(chunks_are_as_many_in_every_round),
        cmocka_unit_test(a_model_may_be_smaller_than_its_fragments),
        cmocka_unit_test(memory_may_run_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
