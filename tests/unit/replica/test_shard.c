/* Shards: the little language that names them, and fixed shards. */
#include "tests/check.h"

#include "base/mem.h"
#include "replica/data/shard_spec.h"

/* Every form of --shard and --shard-of means what it says. */
static void specs_are_understood(void **state)
{
    struct shard_spec spec;

    (void)state;
    assert_int_equal(shard_spec_parse(NULL, NULL, &spec, NULL), RC_OK);
    assert_int_equal(spec.kind, SHARD_IID);
    assert_false(spec.is_fixed);
    assert_int_equal(shard_spec_parse("iid", "3/4", &spec, NULL), RC_OK);
    assert_int_equal(spec.kind, SHARD_IID);
    assert_true(spec.is_fixed);
    assert_int_equal(spec.index, 3);
    assert_int_equal(spec.count, 4);
    assert_int_equal(shard_spec_parse("all", NULL, &spec, NULL), RC_OK);
    assert_int_equal(spec.kind, SHARD_ALL);
    assert_int_equal(shard_spec_parse("dirichlet:0.1", "0/1", &spec, NULL), RC_OK);
    assert_int_equal(spec.kind, SHARD_DIRICHLET);
    assert_true(spec.alpha == 0.1);
}

static void refuse(const char *shard, const char *shard_of, enum rc rc, const char *reason)
{
    struct shard_spec spec = {.count = 77};
    struct fault why = {""};

    if (shard_spec_parse(shard, shard_of, &spec, &why) != rc)
        fail_msg("%s is judged wrongly", shard);
    if (strstr(why.text, reason) == NULL) fail_msg("wanted '%s', said '%s'", reason, why.text);
    assert_int_equal(spec.count, 77);
}

/* A mistake is refused with the flag and the column where it is. */
static void mistakes_are_shown_where_they_are(void **state)
{
    (void)state;
    refuse("idd", NULL, RC_PARSE, "--shard idd: column 1: unknown split");
    refuse("", NULL, RC_PARSE, "column 1");
    refuse("dirichlet", "0/1", RC_PARSE, "column 1");
    refuse("dirichlet:", "0/1", RC_PARSE, "--shard dirichlet:: column 11: ALPHA");
    refuse("dirichlet:x", "0/1", RC_PARSE, "column 11: ALPHA");
    refuse("dirichlet:0", "0/1", RC_PARSE, "column 11: ALPHA");
    refuse("dirichlet:-1", "0/1", RC_PARSE, "column 11: ALPHA");
    refuse("dirichlet:nan", "0/1", RC_PARSE, "column 11: ALPHA");
    refuse("dirichlet:1e7", "0/1", RC_PARSE, "column 11: ALPHA");
    refuse("dirichlet:0.5", NULL, RC_USAGE, "needs --shard-of");
    refuse("iid", "", RC_PARSE, "column 1: expected I/N");
    refuse("iid", "3", RC_PARSE, "--shard-of 3: column 2: expected I/N");
    refuse("iid", "/4", RC_PARSE, "column 1: I must be");
    refuse("iid", "x/4", RC_PARSE, "column 1: I must be");
    refuse("iid", "-1/4", RC_PARSE, "column 1: I must be");
    refuse("iid", "00000000000000000000001/4", RC_PARSE, "column 1: I must be");
    refuse("iid", "1/", RC_PARSE, "column 3: N must be");
    refuse("iid", "1/0", RC_PARSE, "column 3: N must be");
    refuse("iid", "12/4x", RC_PARSE, "column 4: N must be");
    refuse("iid", "1/99999999", RC_PARSE, "column 3: N must be");
    refuse("iid", "4/4", RC_PARSE, "column 1: I counts from 0");
}

/* Fixed shards take every N-th block: disjoint, complete, and equal but for one block. */
static void fixed_shares_deal_blocks_out(void **state)
{
    (void)state;
    for (uint32_t count = 1; count < 40; count++) {
        int owners[37] = {0};
        uint32_t least = 37, most = 0;

        for (uint32_t index = 0; index < count; index++) {
            struct shard_spec spec = {.is_fixed = true, .index = index, .count = count};
            bool wanted[37];
            uint32_t size = 0;

            shard_spec_fixed(&spec, 37, wanted);
            for (int block = 0; block < 37; block++) {
                owners[block] += wanted[block];
                size += wanted[block];
            }
            if (size < least) least = size;
            if (size > most) most = size;
        }
        for (int block = 0; block < 37; block++) {
            assert_int_equal(owners[block], 1);
        }
        assert_true(most - least <= 1);
    }
}

/* Who is not a member owns nothing, and a lone member everything. */
static void outsiders_own_nothing(void **state)
{
    struct peer_id self = {{1}}, other = {{2}};
    bool wanted[20];

    (void)state;
    shard_spec_rendezvous(self, &self, 1, 20, wanted);
    for (int block = 0; block < 20; block++) {
        assert_true(wanted[block]);
    }
    shard_spec_rendezvous(self, &other, 1, 20, wanted);
    for (int block = 0; block < 20; block++) {
        assert_false(wanted[block]);
    }
    shard_spec_rendezvous(self, NULL, 0, 20, wanted);
    assert_false(wanted[0]);
    shard_spec_rendezvous(self, &self, 1, 0, NULL);
}

/* Either allocation failing is RC_NOMEM, and nothing is kept. */
static void short_memory_is_survived(void **state)
{
    struct shard_spec spec = {.kind = SHARD_DIRICHLET, .alpha = 1.0, .is_fixed = true, .count = 1};
    static const uint32_t labels[] = {0, 1, 0};
    uint64_t before = mem_blocks();
    uint32_t *indices = NULL;
    size_t count;

    (void)state;
    for (uint64_t n = 0; n < 2; n++) {
        mem_fail_after(n);
        assert_int_equal(shard_spec_dirichlet(&spec, 1, labels, 3, 2, &indices, &count), RC_NOMEM);
        assert_int_equal(mem_blocks(), before);
    }
    mem_fail_after(UINT64_MAX);
    assert_int_equal(shard_spec_dirichlet(&spec, 1, labels, 3, 2, &indices, &count), RC_OK);
    assert_int_equal(count, 3);
    mem_free(indices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(specs_are_understood),
        cmocka_unit_test(mistakes_are_shown_where_they_are),
        cmocka_unit_test(fixed_shares_deal_blocks_out),
        cmocka_unit_test(outsiders_own_nothing),
        cmocka_unit_test(short_memory_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
