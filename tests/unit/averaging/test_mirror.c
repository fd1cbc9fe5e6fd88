/* Copies that follow encoded differences: golden values of CHOCO, its limits, and codec topk. */
#include "tests/check.h"

#include "averaging/codec/mirror.h"
#include "gossip/wire/limits.h"
#include "base/bytes.h"
#include "base/rng.h"

#include <math.h>

enum { PEERS_MAX = 8, VALUES_MAX = 200 };

static struct codec codec_of(const char *name)
{
    struct codec codec = {.ops = NULL};
    struct fault why = {""};

    if (codec_find(name, &codec, &why) != RC_OK) fail_msg("%s", why.text);
    return codec;
}

/* A swarm in which the neighbours of peer i are all others, or the two beside it in a ring, with
 * Metropolis-Hastings weights of a third each; as rounds do it: step, then all copies follow, then
 * everybody moves by gamma times the weighted differences of copies. */
struct swarm {
    uint32_t peers;
    size_t values;
    struct codec codec;
    float gamma;
    uint64_t rounds;
    float x[PEERS_MAX][VALUES_MAX], own[PEERS_MAX][VALUES_MAX];
    float held[PEERS_MAX][PEERS_MAX][VALUES_MAX]; /* [holder][of] */
    float late[PEERS_MAX][VALUES_MAX];            /* order B: what the last exchange moves by */
};

static void exchange(struct swarm *s)
{
    static float scratch[VALUES_MAX];
    static uint8_t bytes[8 * VALUES_MAX];
    size_t count = 0;

    s->rounds++;
    for (uint32_t i = 0; i < s->peers; i++) {
        assert_int_equal(mirror_advance(&s->codec, rng_mix(s->rounds, i), s->x[i], s->own[i],
                                        s->values, scratch, bytes, &count),
                         RC_OK);
        for (uint32_t j = 0; j < s->peers; j++) {
            if (j == i) continue;
            assert_int_equal(
                mirror_follow(&s->codec, bytes, count, s->held[j][i], s->values, scratch), RC_OK);
            assert_memory_equal(s->held[j][i], s->own[i], s->values * sizeof(float)); /* T8 */
        }
    }
}

static bool are_neighbours(const struct swarm *s, uint32_t i, uint32_t j)
{
    return i != j && (s->peers == 3 || (i + 1) % s->peers == j || (j + 1) % s->peers == i);
}

static void move(struct swarm *s, float to[PEERS_MAX][VALUES_MAX])
{
    for (uint32_t i = 0; i < s->peers; i++) {
        for (size_t k = 0; k < s->values; k++) {
            double sum = 0;

            for (uint32_t j = 0; j < s->peers; j++) {
                float apart = s->held[i][j][k] - s->own[i][k];

                if (are_neighbours(s, i, j)) sum += (double)(s->gamma / 3 * apart);
            }
            to[i][k] += (float)sum;
        }
    }
}

static void check_planes(float x[PEERS_MAX][VALUES_MAX], const double wanted[3][2])
{
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++) {
            if (fabs((double)x[i][k] - wanted[i][k]) < 2e-5) continue;
            fail_msg("peer %d, value %d: %g, not %g", i, k, (double)x[i][k], wanted[i][k]);
        }
    }
}

static struct swarm *golden(void)
{
    static struct swarm s;
    static const float start[3][2] = {{1, 0}, {0, 2}, {4, 1}};

    s = (struct swarm){.peers = 3, .values = 2, .codec = codec_of("topk:0.25"), .gamma = 0.5f};
    for (int i = 0; i < 3; i++) {
        memcpy(s.x[i], start[i], sizeof start[i]);
    }
    return &s;
}

static const double round1[3][2] = {{1.33333, .333333}, {.833333, 1.33333}, {2.83333, 1.33333}};

static void choco_has_its_golden_values(void **state)
{
    (void)state;
    /* Three peers, the larger of two values travels, copies begin at 0. Order A moves at once. */
    static const double copies1[3][2] = {{1, 0}, {0, 2}, {4, 0}};
    static const double round2[3][2] = {{1.80556, .777778}, {1.38889, .944444}, {1.80556, 1.27778}};
    static const double copies2[3][2] = {{1, .333333}, {.833333, 2}, {4, 1.33333}};
    struct swarm *s = golden();

    exchange(s);
    move(s, s->x);
    check_planes(s->own, copies1);
    check_planes(s->x, round1);
    exchange(s);
    move(s, s->x);
    check_planes(s->own, copies2);
    check_planes(s->x, round2);
}

static void order_b_moves_one_exchange_later(void **state)
{
    (void)state;
    /* The move waits for the next border, and comes before what is encoded there. */
    static const double start[3][2] = {{1, 0}, {0, 2}, {4, 1}};
    struct swarm *s = golden();

    exchange(s);
    move(s, s->late);
    check_planes(s->x, start);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++) {
            s->x[i][k] += s->late[i][k];
        }
    }
    check_planes(s->x, round1);
}

/* Ring of 8, Gaussian start: spread after so many rounds over that before. */
static double spread_after(const char *codec, float gamma, int rounds, double *drift)
{
    static struct swarm s;
    double before = 0, after = 0, sums[2] = {0, 0};
    struct rng rng;

    s = (struct swarm){.peers = 8, .values = VALUES_MAX, .codec = codec_of(codec), .gamma = gamma};
    codec_contract(&s.codec);
    rng_init(&rng, 3, 0);
    for (int round = -1; round < rounds; round++) {
        for (int i = 0; i < 8 && round < 0; i++) {
            for (int k = 0; k < VALUES_MAX; k++) {
                s.x[i][k] = (float)rng_normal(&rng);
            }
        }
        if (round >= 0) exchange(&s);
        if (round >= 0) move(&s, s.x);
        after = 0;
        for (int k = 0; k < VALUES_MAX; k++) {
            double mean = 0;

            for (int i = 0; i < 8; i++) {
                mean += (double)s.x[i][k] / 8;
            }
            for (int i = 0; i < 8; i++) {
                after += ((double)s.x[i][k] - mean) * ((double)s.x[i][k] - mean);
            }
            sums[round >= 0] += round < 0 || round == rounds - 1 ? mean : 0;
        }
        if (round < 0) before = after;
        if (!(after < 1e6 * before)) break;
    }
    *drift = fabs(sums[1] - sums[0]);
    return after / before;
}

static void peers_come_together_while_the_step_suits_the_codec(void **state)
{
    (void)state;
    /* T1, T6, T17: with nothing lost a step of 1 is plain mixing; a tenth of the values bears a
     * step of a tenth and not one of 0.7. */
    double drift;

    assert_true(spread_after("f32", 1, 200, &drift) < 1e-10);
    assert_true(drift < 1e-3);
    assert_true(spread_after("int8", 0.8f, 200, &drift) < 1e-10);
    assert_true(drift < 1e-3);
    assert_true(spread_after("topk:0.1", 0.1f, 200, &drift) < 1e-2);
    assert_true(drift < 1e-3);
    assert_true(spread_after("topk:0.1", 0.1f, 400, &drift) < 1e-5);
    assert_true(spread_after("topk:0.1", 0.7f, 400, &drift) > 100);
    assert_true(spread_after("topk:0.01", 0.01f, 400, &drift) < 0.2);
    assert_true(spread_after("qsgd:1", 0.4f, 400, &drift) > 100);
    assert_true(spread_after("randk:0.1", 0.4f, 400, &drift) > 100);
}

static void peers_come_together_with_the_step_of_each_codec(void **state)
{
    (void)state;
    /* The step that a codec says is known to hold on a ring does, on one of eight: the spread falls
     * about as it does with nothing lost, (1 - 0.195 step)^2 a round, and the mean stays. */
    struct codec codec;

    for (size_t i = 0; codec_example(i) != NULL; i++) {
        double drift, after, slowest, floor = 1e-6;

        codec = codec_of(codec_example(i));
        if (codec.ops->varies) continue; /* stops at its threshold: the next test */
        if (codec.ops == &codec_ops_sign || codec.rest == &codec_ops_sign) floor = 1e-2;
        slowest = pow(1 - 0.195 * (double)codec.traits.step, 2 * 600);
        after = spread_after(codec.name, codec.traits.step, 600, &drift);
        if (!(after < fmax(3 * slowest, floor)) || drift > 1e-2) {
            fail_msg("%s, step %g: %g of the spread are left, drift %g", codec.name,
                     (double)codec.traits.step, after, drift);
        }
    }
}

static void thresholds_stop_where_nothing_is_larger(void **state)
{
    (void)state;
    /* Copies are within T of the models, so models come together but for about T. */
    struct codec codec = codec_of("threshold:0.01");
    double drift;

    assert_true(spread_after("threshold:0.01", codec.traits.step, 600, &drift) < 1e-3);
    assert_true(drift < 1e-2);
}

static void no_number_moves_no_copy_for_good(void **state)
{
    (void)state;
    /* A difference that overflows is told of, on both ends. */
    float x[4] = {3e38f, 0, 0, 0}, mirror[4] = {-3e38f, 0, 0, 0}, scratch[4];
    uint8_t bytes[16];
    size_t count;

    assert_int_equal(mirror_advance(&codec_f32, 0, x, mirror, 4, scratch, bytes, &count),
                     RC_NONFINITE);
    codec_encode(CODEC_F32, x, 4, bytes);
    mirror[0] = 3e38f;
    assert_int_equal(mirror_follow(&codec_f32, bytes, 16, mirror, 4, scratch), RC_NONFINITE);
    assert_int_equal(mirror_follow(&codec_f32, bytes, 15, mirror, 4, scratch), RC_FORMAT);
}

/* ---- topk ---- */

static void topk_keeps_the_largest(void **state)
{
    (void)state;
    /* Two of ten: places, then values; ties go to the lower place; zeros are fine. */
    const float in[10] = {0.5f, -3, 1, 3, 2, -3, 0, 0, 0, 0};
    const struct codec topk = codec_of("topk:0.25"), *codec = &topk;
    uint8_t bytes[18], again[18];
    float out[10];

    assert_int_equal(codec->ops->bytes_max(codec, 10), 18);
    codec->ops->encode(codec, 0, in, 10, bytes);
    assert_int_equal(load_le16(bytes), 1);
    assert_int_equal(load_le16(bytes + 2), 3);
    assert_int_equal(load_le16(bytes + 4), 5);
    assert_int_equal(codec->ops->decode(codec, bytes, 18, out, 10), RC_OK);
    assert_true(out[0] == 0 && out[1] == -3 && out[3] == 3 && out[5] == -3 && out[4] == 0);
    codec->ops->encode(codec, 0, out, 10, again);
    assert_memory_equal(bytes, again, 18);
    memset(out, 0, sizeof out);
    codec->ops->encode(codec, 0, out, 10, bytes);
    assert_int_equal(codec->ops->decode(codec, bytes, 18, out, 10), RC_OK);
    assert_int_equal(codec->ops->bytes_max(codec, 0), 0);
    codec->ops->encode(codec, 0, out, 0, bytes);
    assert_int_equal(codec->ops->decode(codec, bytes, 0, out, 0), RC_OK);
}

static void topk_agrees_with_sorting(void **state)
{
    (void)state;
    /* What is left out is nowhere larger than what is kept, for any sizes and shares. */
    static float in[3000], out[3000];
    static uint8_t bytes[6 * 3000];
    struct rng rng;

    FOR_EACH_SEED (seed, 40) {
        static const char *const names[] = {"topk:0.01", "topk:0.013", "topk:0.0001", "topk:0.1",
                                            "topk:0.25"};
        const struct codec topk = codec_of(names[seed % 5]), *codec = &topk;
        size_t values, kept = 0;
        float least = INFINITY, most = 0;

        rng_init(&rng, seed, 0);
        values = 1 + (size_t)rng_below(&rng, 3000);
        for (size_t i = 0; i < values; i++) {
            in[i] = (float)(rng_normal(&rng) * pow(10, (double)(rng_below(&rng, 60)) - 38));
            if (seed % 3 == 0) in[i] = (float)rng_below(&rng, 3); /* many ties */
        }
        codec->ops->encode(codec, 0, in, values, bytes);
        assert_int_equal(
            codec->ops->decode(codec, bytes, codec->ops->bytes_max(codec, values), out, values),
            RC_OK);
        for (size_t i = 0; i < values; i++) {
            if (out[i] != 0) {
                kept++;
                check_seed(seed, out[i] == in[i]);
                least = fminf(least, fabsf(in[i]));
            } else {
                most = fmaxf(most, fabsf(in[i]));
            }
        }
        check_seed(seed, least >= most && 6 * kept <= codec->ops->bytes_max(codec, values));
    }
}

static void a_plane_of_many_chunks_has_a_size(void **state)
{
    /* Proves: a plane's bytes are those of its chunks, also where places are counted within one. */
    const size_t values = 3 * CHUNK_VALUES + 7;
    const struct codec topk = codec_of("topk:0.1"), *codec = &topk;

    (void)state;
    assert_int_equal(codec_plane_bytes(codec, values),
                     3 * codec->ops->bytes_max(codec, CHUNK_VALUES) + 6);
    assert_int_equal(codec_plane_bytes(codec, CHUNK_VALUES),
                     codec->ops->bytes_max(codec, CHUNK_VALUES));
    for (size_t i = 0; codec_at(i) != NULL; i++) {
        assert_int_equal(codec_plane_bytes(codec_at(i), values),
                         codec_at(i)->ops->bytes_max(codec_at(i), values));
    }
}

static void hostile_bytes_are_no_topk(void **state)
{
    (void)state;
    /* Places that do not rise or lie outside, values that are no numbers, other lengths. */
    const struct codec topk = codec_of("topk:0.25"), *codec = &topk;
    float in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8];
    uint8_t good[12], bad[12];

    codec->ops->encode(codec, 0, in, 8, good);
    assert_int_equal(codec->ops->decode(codec, good, 11, out, 8), RC_FORMAT);
    assert_int_equal(codec->ops->decode(codec, good, 12, out, 9), RC_FORMAT);
    assert_int_equal(codec->ops->decode(codec, good, 12, out, 100000), RC_FORMAT);
    memcpy(bad, good, sizeof bad);
    store_le16(bad + 2, load_le16(bad));
    assert_int_equal(codec->ops->decode(codec, bad, 12, out, 8), RC_FORMAT);
    store_le16(bad, 7);
    store_le16(bad + 2, 6);
    assert_int_equal(codec->ops->decode(codec, bad, 12, out, 8), RC_FORMAT);
    store_le16(bad, 6);
    store_le16(bad + 2, 8);
    assert_int_equal(codec->ops->decode(codec, bad, 12, out, 8), RC_FORMAT);
    memcpy(bad, good, sizeof bad);
    store_le32(bad + 8, 0x7fc00000u);
    assert_int_equal(codec->ops->decode(codec, bad, 12, out, 8), RC_NONFINITE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choco_has_its_golden_values),
        cmocka_unit_test(order_b_moves_one_exchange_later),
        cmocka_unit_test(peers_come_together_while_the_step_suits_the_codec),
        cmocka_unit_test(peers_come_together_with_the_step_of_each_codec),
        cmocka_unit_test(thresholds_stop_where_nothing_is_larger),
        cmocka_unit_test(no_number_moves_no_copy_for_good),
        cmocka_unit_test(topk_keeps_the_largest),
        cmocka_unit_test(topk_agrees_with_sorting),
        cmocka_unit_test(a_plane_of_many_chunks_has_a_size),
        cmocka_unit_test(hostile_bytes_are_no_topk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
