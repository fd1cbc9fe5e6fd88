/*
 * Rounds of neighbours with --robust clip: each end takes as much of an edge as its own radius
 * leaves; and rules keep something of it only where neither clips.
 */
#include "tests/unit/averaging/steps.h"

#include "base/bytes.h"
#include "base/mem.h"

enum { LEARNING = 8, FIRST = 1, SECOND = 2 };

/* Radius: 1.5 times what is usual, 2. */
static const float left_of_20 = 0.15f * 0.15f * 0.15f;

/* The first decides. A plane of one chunk; jobs are done at once. */
struct duo {
    const struct exchange_ops *ops;
    struct exchange *ends[2];
    struct commands out[2];
    uint64_t now_ns;
    float squared;                /* what both measure */
    struct message commit;        /* as last sent */
    struct command edge[2], late; /* as last counted; late: at the second */
    bool loses_commit, has_memory;
};

static struct exchange *end_create(const struct duo *duo, int i, bool clips)
{
    uint8_t number = (uint8_t)(FIRST + i);
    struct exchange_options options = {.self = id_of(number),
                                       .boot = boot_of(number),
                                       .chunks = 1,
                                       .clips = clips,
                                       .has_memory = duo->has_memory};
    struct exchange *end = duo->ops->create(&options);

    assert_non_null(end);
    return end;
}

static struct duo duo_start_with(bool clips, bool has_memory)
{
    struct duo duo = {.ops = &exchange_edges, .now_ns = NS_PER_S, .squared = 4};

    duo.has_memory = has_memory;
    for (uint8_t i = 0; i < 2; i++) {
        duo.ends[i] = end_create(&duo, i, clips);
        commands_init(&duo.out[i]);
        duo.ops->set_lineage(duo.ends[i], (struct digest){{9}}, &duo.out[i]);
    }
    for (uint8_t i = 0; i < 2; i++) {
        uint8_t other = (uint8_t)(SECOND - i);

        duo.ops->on_link_up(duo.ends[i], id_of(other), boot_of(other), duo.now_ns, &duo.out[i]);
    }
    return duo;
}

static struct duo duo_start(bool clips)
{
    return duo_start_with(clips, false);
}

static void duo_end(struct duo *duo)
{
    for (int i = 0; i < 2; i++) {
        duo->ops->destroy(duo->ends[i]);
        commands_deinit(&duo->out[i]);
    }
}

static void obey(struct duo *duo, int from, const struct command *c)
{
    int to = 1 - from;
    uint8_t number = (uint8_t)(FIRST + from);
    struct chunk_ref chunk = {id_of(number), c->buffer, c->stream, 0};
    struct chunk_use use;

    switch (c->type) {
    case COMMAND_SEND:
        if (c->message.type == MESSAGE_COMMIT) duo->commit = c->message;
        if (c->message.type == MESSAGE_COMMIT && duo->loses_commit) break;
        (void)!duo->ops->on_message(duo->ends[to], id_of(number), boot_of(number), &c->message,
                                    duo->now_ns, &duo->out[to]);
        break;
    case COMMAND_SNAPSHOT:
        duo->ops->on_job_done(duo->ends[from], JOB_SNAPSHOT, 0, RC_OK, nothing, duo->now_ns,
                              &duo->out[from]);
        break;
    case COMMAND_SEND_RANGE:
        assert_int_equal(duo->ops->on_chunk(duo->ends[to], &chunk, &use), RC_OK);
        duo->ops->on_chunk_checked(duo->ends[to], &chunk, RC_OK, nothing, duo->squared, duo->now_ns,
                                   &duo->out[to]);
        break;
    case COMMAND_EDGE:
        duo->edge[from] = *c;
        break;
    case COMMAND_OVER:
        if (from == 1 && c->over.is_late) duo->late = *c;
        break;
    default:
        break;
    }
}

static void talk(struct duo *duo)
{
    for (int i = 0; i < 40; i++) {
        int from = i % 2;
        struct commands said = duo->out[from];

        commands_init(&duo->out[from]);
        for (uint32_t k = 0; k < said.count; k++) {
            obey(duo, from, &said.items[k]);
        }
        commands_deinit(&said);
    }
}

/* A round; the two ends give the edge unlike weights. */
static void play(struct duo *duo)
{
    duo->now_ns += NS_PER_S;
    for (uint8_t i = 0; i < 2; i++) {
        uint8_t number = (uint8_t)(SECOND - i);
        struct peer_id other = id_of(number);
        struct boot_id boot = boot_of(number);
        float weight = i == 0 ? 0.5f : 0.3f;
        struct round_members members = {
            .ids = &other, .boots = &boot, .count = 1, .weights = &weight};

        assert_int_equal(duo->ops->begin(duo->ends[i], &members, 0, duo->now_ns, &duo->out[i]),
                         RC_OK);
    }
    talk(duo);
}

static void assert_weight(const struct duo *duo, float weight)
{
    assert_true(duo->edge[0].edge.weight == duo->edge[1].edge.weight);
    assert_float_equal(duo->edge[0].edge.weight, weight, 1e-6f);
}

static void an_edge_only_measures_before_it_knows_what_is_usual(void **state)
{
    struct duo duo = duo_start(true);

    (void)state;
    for (int i = 0; i < LEARNING; i++) {
        play(&duo);
        assert_weight(&duo, 0);
    }
    play(&duo);
    assert_weight(&duo, 0.3f); /* as far as usual: all of it */
    duo.squared = 400;
    play(&duo);
    assert_weight(&duo, 0.3f * left_of_20);
    duo_end(&duo);
    duo = duo_start(false);
    play(&duo);
    assert_weight(&duo, 0.3f);
    duo_end(&duo);
}

/* The second knows nothing yet, as after a restart. */
static void forget_second(struct duo *duo)
{
    struct exchange_counts counts;

    duo->ops->destroy(duo->ends[1]);
    duo->ends[1] = end_create(duo, 1, true);
    duo->ops->set_lineage(duo->ends[1], (struct digest){{9}}, &duo->out[1]);
    duo->ops->counts(duo->ends[0], &counts);
    duo->ops->set_round(duo->ends[1], counts.next_round);
    duo->ops->on_link_lost(duo->ends[0], id_of(SECOND), duo->now_ns, &duo->out[0]);
    for (uint8_t i = 0; i < 2; i++) {
        uint8_t other = (uint8_t)(SECOND - i);

        duo->ops->on_link_up(duo->ends[i], id_of(other), boot_of(other), duo->now_ns, &duo->out[i]);
    }
    talk(duo);
}

static void each_end_goes_by_its_own_radius(void **state)
{
    struct duo duo = duo_start(true);

    (void)state;
    for (int i = 0; i <= LEARNING; i++) {
        play(&duo);
    }
    forget_second(&duo);
    play(&duo);
    assert_float_equal(duo.edge[0].edge.weight, 0.3f, 1e-6f);
    assert_true(duo.edge[1].edge.weight == 0);
    duo_end(&duo);
}

/* Or what all keep would no longer add up to zero. */
static void nothing_is_kept_of_an_edge_that_either_end_clips(void **state)
{
    struct duo duo = duo_start_with(true, true);

    (void)state;
    for (int i = 0; i <= LEARNING; i++) {
        play(&duo);
    }
    assert_weight(&duo, 0.3f);
    assert_false(duo.edge[0].edge.passes || duo.edge[1].edge.passes);
    duo.squared = 400;
    play(&duo);
    assert_weight(&duo, 0.3f * left_of_20);
    assert_true(duo.edge[0].edge.passes && duo.edge[1].edge.passes);
    forget_second(&duo); /* it clips, and the first does not: 20 is usual now */
    play(&duo);
    assert_float_equal(duo.edge[0].edge.weight, 0.3f, 1e-6f);
    assert_true(duo.edge[0].edge.passes && duo.edge[1].edge.passes);
    assert_true(duo.edge[1].edge.weight == 0);
    duo_end(&duo);
}

/* Where its decision comes too late, as much counts as would have in time. */
static void a_late_decision_counts_as_much(void **state)
{
    struct duo duo = duo_start(true);
    struct message tell = {.type = MESSAGE_OUTCOME};

    (void)state;
    for (int i = 0; i <= LEARNING; i++) {
        play(&duo);
    }
    duo.squared = 400;
    duo.loses_commit = true;
    play(&duo);
    duo.ops->on_link_lost(duo.ends[1], id_of(FIRST), duo.now_ns, &duo.out[1]);
    talk(&duo);
    assert_true(duo.edge[1].edge.is_in_doubt && duo.edge[1].edge.weight == 1);
    tell.as.outcome.key = duo.commit.as.commit.key;
    tell.as.outcome.state = OUTCOME_COMMITTED;
    assert_int_equal(duo.ops->on_message(duo.ends[1], id_of(FIRST), boot_of(FIRST), &tell,
                                         duo.now_ns, &duo.out[1]),
                     RC_OK);
    talk(&duo);
    assert_int_equal(duo.late.over.result, OVER_COMMITTED);
    assert_float_equal(duo.late.over.scale, 0.3f * left_of_20, 1e-6f);
    assert_true(duo.late.over.scale == duo.edge[0].edge.weight); /* the other end's, to the bit */
    duo_end(&duo);
}

/* It is asked after a restart, and answers from its checkpoint. */
static void what_was_decided_outlives_a_restart(void **state)
{
    struct duo duo = duo_start(true);
    uint8_t *bytes;
    size_t count;

    (void)state;
    for (int i = 0; i <= LEARNING; i++) {
        play(&duo);
    }
    duo.squared = 400;
    duo.loses_commit = true;
    play(&duo);
    assert_int_equal(duo.ops->save(duo.ends[0], &bytes, &count), RC_OK);
    duo.ops->destroy(duo.ends[0]);
    duo.ends[0] = start(duo.ops, FIRST, 1, &duo.out[0]);
    assert_int_equal(duo.ops->load(duo.ends[0], bytes, count), RC_OK);
    store_le32(bytes, 3); /* with scales, as it once was */
    assert_int_equal(duo.ops->load(duo.ends[0], bytes, count), RC_MISMATCH);
    mem_free(bytes);
    duo.ops->on_link_lost(duo.ends[1], id_of(FIRST), duo.now_ns, &duo.out[1]);
    duo.ops->on_link_up(duo.ends[1], id_of(FIRST), boot_of(FIRST), duo.now_ns, &duo.out[1]);
    talk(&duo);
    assert_int_equal(duo.late.over.result, OVER_COMMITTED);
    assert_true(duo.late.over.scale == duo.edge[0].edge.weight);
    duo_end(&duo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_edge_only_measures_before_it_knows_what_is_usual),
        cmocka_unit_test(each_end_goes_by_its_own_radius),
        cmocka_unit_test(nothing_is_kept_of_an_edge_that_either_end_clips),
        cmocka_unit_test(a_late_decision_counts_as_much),
        cmocka_unit_test(what_was_decided_outlives_a_restart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
