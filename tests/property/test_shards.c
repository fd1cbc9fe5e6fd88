/* Shards under change: who owns what when peers come and go, and label-skewed shards. */
#include "tests/check.h"

#include "base/mem.h"
#include "base/rng.h"
#include "replica/data/shard_spec.h"

#include <math.h>

enum { BLOCKS = 235, MEMBERS_MAX = 24, SAMPLES = 3000, CLASSES = 10 };

static int compare_ids(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct peer_id));
}

/* Random members, sorted. */
static size_t draw_members(struct rng *rng, struct peer_id *members)
{
    size_t count = 2 + (size_t)rng_below(rng, MEMBERS_MAX - 2);

    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < PEER_ID_BYTES; k++) {
            members[i].bytes[k] = (uint8_t)rng_u64(rng);
        }
    }
    qsort(members, count, sizeof *members, compare_ids);
    return count;
}

/* owner[block]: index into `members`; fails unless every block has exactly one. */
static void find_owners(uint64_t seed, const struct peer_id *members, size_t count, size_t *owners)
{
    int found[BLOCKS] = {0};

    for (size_t i = 0; i < count; i++) {
        bool wanted[BLOCKS];

        shard_spec_rendezvous(members[i], members, count, BLOCKS, wanted);
        for (size_t block = 0; block < BLOCKS; block++) {
            if (!wanted[block]) continue;
            owners[block] = i;
            found[block]++;
        }
    }
    for (size_t block = 0; block < BLOCKS; block++) {
        check_seed(seed, found[block] == 1);
    }
}

/* Whoever the members are, every block has exactly one owner, and nobody has far too much. */
static void every_block_has_one_owner(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 100) {
        struct peer_id members[MEMBERS_MAX];
        size_t owners[BLOCKS], count, sizes[MEMBERS_MAX] = {0};
        struct rng rng;
        double mean;

        rng_init(&rng, seed, 1);
        count = draw_members(&rng, members);
        find_owners(seed, members, count, owners);
        mean = BLOCKS / (double)count;
        for (size_t block = 0; block < BLOCKS; block++) {
            sizes[owners[block]]++;
        }
        for (size_t i = 0; i < count; i++) {
            check_seed(seed, fabs((double)sizes[i] - mean) < 5.0 * sqrt(mean) + 1.0);
        }
    }
}

/* When a member leaves, its blocks move and no others; when it comes back, they return. So a join
 * moves about 1/N of all. */
static void only_the_leavers_blocks_move(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 100) {
        struct peer_id members[MEMBERS_MAX], rest[MEMBERS_MAX];
        size_t before[BLOCKS], after[BLOCKS], count, leaver, moved = 0;
        struct rng rng;

        rng_init(&rng, seed, 2);
        count = draw_members(&rng, members);
        leaver = (size_t)rng_below(&rng, count);
        memcpy(rest, members, sizeof rest);
        memmove(rest + leaver, rest + leaver + 1, (count - leaver - 1) * sizeof *rest);
        find_owners(seed, members, count, before);
        find_owners(seed, rest, count - 1, after);
        for (size_t block = 0; block < BLOCKS; block++) {
            if (before[block] == leaver)
                moved++;
            else
                check_seed(seed, peer_id_is_equal(members[before[block]], rest[after[block]]));
        }
        check_seed(seed, (double)moved < 2.0 * BLOCKS / (double)count + 10.0);
    }
}

static void draw_labels(uint64_t seed, uint32_t *labels)
{
    struct rng rng;

    rng_init(&rng, seed, 3);
    for (size_t i = 0; i < SAMPLES; i++) {
        labels[i] = (uint32_t)rng_below(&rng, CLASSES);
    }
}

/* Dirichlet shards of any alpha and count are ascending, disjoint and complete, and the same when
 * drawn again. */
static void dirichlet_shares_are_a_partition(void **state)
{
    static const double alphas[] = {1e-3, 0.01, 0.1, 1.0, 100.0, 1e6};

    (void)state;
    FOR_EACH_SEED (seed, 30) {
        struct shard_spec spec = {.kind = SHARD_DIRICHLET, .is_fixed = true};
        uint32_t labels[SAMPLES];
        int owners[SAMPLES] = {0};

        draw_labels(seed, labels);
        spec.alpha = alphas[seed % 6];
        spec.count = 1 + (uint32_t)(seed * 7 % 33);
        for (spec.index = 0; spec.index < spec.count; spec.index++) {
            uint32_t *indices, *again;
            size_t count, count_again;
            enum rc rc, rc_again;

            rc = shard_spec_dirichlet(&spec, seed, labels, SAMPLES, CLASSES, &indices, &count);
            rc_again =
                shard_spec_dirichlet(&spec, seed, labels, SAMPLES, CLASSES, &again, &count_again);
            check_seed(seed, rc == RC_OK && rc_again == RC_OK && count == count_again);
            for (size_t i = 0; i < count; i++) {
                check_seed(seed, indices[i] < SAMPLES && indices[i] == again[i]);
                check_seed(seed, i == 0 || indices[i - 1] < indices[i]);
                owners[indices[i]]++;
            }
            mem_free(indices);
            mem_free(again);
        }
        for (size_t i = 0; i < SAMPLES; i++) {
            check_seed(seed, owners[i] == 1);
        }
    }
}

/* Mean over shards of the shard's most frequent class. */
static double skew_of(uint64_t seed, double alpha)
{
    struct shard_spec spec = {.kind = SHARD_DIRICHLET, .is_fixed = true, .count = 8};
    uint32_t labels[SAMPLES];
    double sum = 0.0;

    spec.alpha = alpha;
    draw_labels(seed, labels);
    for (spec.index = 0; spec.index < spec.count; spec.index++) {
        size_t seen[CLASSES] = {0}, most = 0, count;
        uint32_t *indices;

        assert_int_equal(
            shard_spec_dirichlet(&spec, seed, labels, SAMPLES, CLASSES, &indices, &count), RC_OK);
        for (size_t i = 0; i < count; i++) {
            size_t now = ++seen[labels[indices[i]]];

            if (now > most) most = now;
        }
        if (count > 0) sum += (double)most / (double)count;
        mem_free(indices);
    }
    return sum / spec.count;
}

/* A small alpha skews the labels, a large one leaves them as they are, and another seed draws
 * another split. */
static void alpha_sets_the_skew(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 10) {
        double skewed = skew_of(seed, 0.1), even = skew_of(seed, 1000.0);

        check_seed(seed, skewed > 0.35);
        check_seed(seed, even < 0.2);
        check_seed(seed, skewed != skew_of(seed + 1000, 0.1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block_has_one_owner),
        cmocka_unit_test(only_the_leavers_blocks_move),
        cmocka_unit_test(dirichlet_shares_are_a_partition),
        cmocka_unit_test(alpha_sets_the_skew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
