/*
 * The state that a program keeps in its own checkpoint: a member that is opened again with it goes
 * on where it was taken, with all that rounds remember; what is no such state, or one of another
 * model or method, is refused with nothing changed.
 */
#include "tests/check.h"
#include "tests/unit/library/toy.h"

#include "base/hash.h"
#include "base/rng.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD = 40 }; /* of the mark and the hash: library/state.c */

struct state {
    uint8_t *bytes;
    size_t count;
};

/* After GV_STATE: the size, too little room, then all of it. */
static void take(struct toy *toy, struct state *state)
{
    assert_int_equal(gv_state(toy->member, NULL, 0, &state->count), GV_TOO_SMALL);
    assert_true(state->count > HEAD);
    state->bytes = malloc(state->count);
    assert_non_null(state->bytes);
    assert_int_equal(gv_state(toy->member, state->bytes, state->count - 1, NULL), GV_TOO_SMALL);
    must(toy->member, gv_state(toy->member, state->bytes, state->count, NULL));
}

static void ask(struct toy *toy, struct state *state)
{
    must(toy->member, gv_ask_state(toy->member));
    assert_int_equal(toy_until(toy, GV_STATE), GV_STATE);
    take(toy, state);
}

static void restore(struct toy *toy, const char *config, const struct state *state)
{
    toy_init(toy, -1.0F, 1.0F);
    must(NULL, gv_open(config, &toy->member));
    must(toy->member, gv_restore(toy->member, state->bytes, state->count));
    must(toy->member, gv_start(toy->member, toy->tensors, 3));
}

static void steps(struct toy *toy, int count)
{
    while (count-- > 0) {
        assert_int_equal(toy_until(toy, GV_STEP), GV_STEP);
        assert_true(toy_step(toy) >= 0);
    }
}

static gv_status_view status_of(struct toy *toy)
{
    gv_status_view status = {.size = sizeof status};

    must(toy->member, gv_status(toy->member, &status));
    return status;
}

static void a_restored_member_goes_on_where_it_was(void **test)
{
    /* Proves: killed after a state was taken and opened again with it, a member ends with the
     * values, to the bit, and the counts of one that went on. */
    struct toy whole, again;
    struct state state;

    (void)test;
    toy_start(&whole, ALONE);
    steps(&whole, 10);
    ask(&whole, &state);
    steps(&whole, 7);
    must(whole.member, gv_leave(whole.member));
    assert_int_equal(toy_until(&whole, GV_ENDED), GV_ENDED);

    restore(&again, ALONE, &state);
    assert_int_equal(gv_wait(again.member), GV_REPLACE);
    assert_float_equal(again.weight[0], -1.0F, 0.0F);
    steps(&again, 7);
    must(again.member, gv_leave(again.member));
    assert_int_equal(toy_until(&again, GV_ENDED), GV_ENDED);
    assert_memory_equal(again.weight, whole.weight, sizeof whole.weight);
    assert_memory_equal(again.mean, whole.mean, sizeof whole.mean);
    assert_int_equal(status_of(&again).step, 17);
    assert_int_equal(status_of(&again).own_steps, 17);
    assert_int_equal(status_of(&again).samples, status_of(&whole).samples);
    gv_close(whole.member);
    gv_close(again.member);
    free(state.bytes);
}

struct partner {
    struct toy toy;
    char config[400];
    atomic_bool is_over;
};

static void *train_along(void *context)
{
    struct partner *partner = context;

    if (gv_open(partner->config, &partner->toy.member) == 0 &&
        gv_start(partner->toy.member, partner->toy.tensors, 3) == 0) {
        while (!atomic_load(&partner->is_over) && toy_until(&partner->toy, GV_STEP) == GV_STEP) {
            (void)toy_step(&partner->toy);
        }
    }
    gv_close(partner->toy.member);
    return NULL;
}

static void all_that_rounds_remember_is_in_it(const char *method)
{
    static const char config[] =
        "averaging = %s\nlisten = 127.0.0.1:0\nstart-with = 2\nquiet = yes\n";
    static struct partner partner;
    struct state state, again;
    struct toy toy, restored;
    char own[200];
    pthread_t thread;
    uint64_t round;

    snprintf(own, sizeof own, config, method);
    toy_start(&toy, own);
    partner = (struct partner){.is_over = false};
    toy_init(&partner.toy, 5.0F, 3.0F);
    snprintf(partner.config, sizeof partner.config, "%sbootstrap = %s\n", own,
             status_of(&toy).address);
    assert_int_equal(pthread_create(&thread, NULL, train_along, &partner), 0);
    while (status_of(&toy).rounds_ok < 2) {
        steps(&toy, 1);
    }
    ask(&toy, &state);
    round = status_of(&toy).round;
    gv_close(toy.member); /* as if killed */
    atomic_store(&partner.is_over, true);

    restore(&restored, own, &state);
    assert_int_equal(status_of(&restored).round, round);
    ask(&restored, &again);
    assert_int_equal(again.count, state.count);
    assert_memory_equal(again.bytes, state.bytes, state.count);
    gv_close(restored.member);
    assert_int_equal(pthread_join(thread, NULL), 0);
    free(state.bytes);
    free(again.bytes);
}

static void a_restored_member_gives_the_same_state(void **test)
{
    /* Proves: outer momentum and anchor, what a codec left out, round number, lineage and promises
     * come back: asked again before it has done anything, a restored member gives the same bytes.
     */
    (void)test;
    all_that_rounds_remember_is_in_it("diloco:H=5");
    all_that_rounds_remember_is_in_it("local-sgd:H=5\ncodec = int8+ef");
}

static void damage_is_seen_before_anything_changes(void **test)
{
    /* Proves: no prefix of a state and no state with a bit turned is taken, each is refused in a
     * sentence, and the member can be used as if nothing had been. */
    struct toy toy;
    struct state state;
    struct rng rng;

    (void)test;
    toy_start(&toy, ALONE);
    steps(&toy, 3);
    ask(&toy, &state);
    gv_close(toy.member);

    toy_init(&toy, 5.0F, 1.0F);
    must(NULL, gv_open(ALONE, &toy.member));
    assert_int_equal(gv_restore(toy.member, NULL, 0), GV_USAGE);
    assert_int_equal(gv_restore(NULL, state.bytes, state.count), GV_USAGE);
    for (size_t count = 0; count < state.count; count += 1 + count / 7) {
        assert_int_equal(gv_restore(toy.member, state.bytes, count), GV_USAGE);
        assert_non_null(strstr(gv_last_error(toy.member), "gv_restore: "));
    }
    rng_init(&rng, 24, 1);
    for (int i = 0; i < 500; i++) {
        const size_t bit = (size_t)rng_below(&rng, 8 * state.count);

        state.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(gv_restore(toy.member, state.bytes, state.count), GV_USAGE);
        state.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    must(toy.member, gv_start(toy.member, toy.tensors, 3));
    assert_int_equal(gv_restore(toy.member, state.bytes, state.count), GV_USAGE);
    assert_int_equal(toy_until(&toy, GV_STEP), GV_STEP);
    assert_float_equal(toy.weight[0], 5.0F, 0.0F);
    gv_close(toy.member);
    free(state.bytes);
}

static void who_makes_the_hash_fit_is_parsed_all_the_same(void **test)
{
    /* Proves: bytes that somebody made up behind a fitting hash are taken or refused, and nothing
     * else; a member that refused them has touched no value. */
    struct toy toy;
    struct state state;
    struct rng rng;
    int refused = 0;

    (void)test;
    toy_start(&toy, ALONE);
    ask(&toy, &state);
    gv_close(toy.member);
    rng_init(&rng, 24, 2);
    for (int i = 0; i < 150; i++) {
        const size_t at = HEAD + (size_t)rng_below(&rng, i % 3 == 0 ? state.count - HEAD : 600);
        const uint8_t was = state.bytes[at];
        struct digest digest;
        int code;

        state.bytes[at] = (uint8_t)(was ^ (1u << rng_below(&rng, 8)));
        digest = hash_of(state.bytes + HEAD, state.count - HEAD);
        memcpy(state.bytes + 8, digest.bytes, DIGEST_BYTES);
        toy_init(&toy, 5.0F, 1.0F);
        must(NULL, gv_open(ALONE, &toy.member));
        code = gv_restore(toy.member, state.bytes, state.count);
        if (code == 0) code = gv_start(toy.member, toy.tensors, 3);
        assert_true(code <= 0);
        refused += code < 0;
        if (code < 0) assert_true(gv_last_error(toy.member)[0] != '\0');
        assert_float_equal(toy.weight[0], 5.0F, 0.0F);
        gv_close(toy.member);
        state.bytes[at] = was;
    }
    assert_true(refused > 100);
    free(state.bytes);
}

static void another_model_and_another_method_are_refused(void **test)
{
    struct toy toy;
    struct state state;

    (void)test;
    toy_start(&toy, ALONE);
    ask(&toy, &state);
    gv_close(toy.member);

    toy_init(&toy, 5.0F, 1.0F);
    toy.tensors[0].shape[0] = 3;
    toy.tensors[0].shape[1] = WIDTH / 3;
    must(NULL, gv_open(ALONE, &toy.member));
    must(toy.member, gv_restore(toy.member, state.bytes, state.count));
    assert_int_equal(gv_start(toy.member, toy.tensors, 3), GV_FAILED);
    assert_non_null(strstr(gv_last_error(toy.member), "with other tensors"));
    assert_float_equal(toy.weight[0], 5.0F, 0.0F);
    gv_close(toy.member);

    toy_init(&toy, 5.0F, 1.0F);
    must(NULL, gv_open("averaging = diloco\nlisten = 127.0.0.1:0\nquiet = yes\n", &toy.member));
    must(toy.member, gv_restore(toy.member, state.bytes, state.count));
    assert_int_equal(gv_start(toy.member, toy.tensors, 3), GV_FAILED);
    assert_non_null(strstr(gv_last_error(toy.member), "is of averaging none"));
    gv_close(toy.member);

    toy_init(&toy, 5.0F, 1.0F); /* restored twice, and never started: nothing is left over */
    must(NULL, gv_open(ALONE, &toy.member));
    must(toy.member, gv_restore(toy.member, state.bytes, state.count));
    must(toy.member, gv_restore(toy.member, state.bytes, state.count));
    gv_close(toy.member);
    free(state.bytes);
}

static void what_cannot_be_had_is_an_error(void **test)
{
    struct toy toy;
    struct state state = {0};
    int event;

    (void)test;
    toy_init(&toy, 5.0F, 1.0F);
    must(NULL, gv_open(ALONE, &toy.member));
    assert_int_equal(gv_ask_state(toy.member), GV_USAGE);
    assert_int_equal(gv_state(toy.member, NULL, 0, &state.count), GV_USAGE);
    must(toy.member, gv_start(toy.member, toy.tensors, 3));
    steps(&toy, 2);
    assert_int_equal(gv_state(toy.member, NULL, 0, &state.count), GV_USAGE);
    toy.weight[5] = NAN; /* and no loss says so */
    must(toy.member, gv_ask_state(toy.member));
    assert_int_equal(toy_until(&toy, GV_STATE), GV_STATE);
    assert_int_equal(gv_state(toy.member, NULL, 0, &state.count), GV_FAILED);
    event = gv_wait(toy.member);
    assert_int_equal(event, GV_REPLACE);
    must(toy.member, gv_apply(toy.member));
    assert_true(isfinite(toy.weight[5]));
    ask(&toy, &state);
    must(toy.member, gv_leave(toy.member));
    assert_int_equal(toy_until(&toy, GV_ENDED), GV_ENDED);
    assert_int_equal(gv_ask_state(toy.member), GV_ENDED);
    assert_int_equal(gv_state(toy.member, NULL, 0, &state.count), GV_USAGE);
    gv_close(toy.member);
    free(state.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restored_member_goes_on_where_it_was),
        cmocka_unit_test(a_restored_member_gives_the_same_state),
        cmocka_unit_test(damage_is_seen_before_anything_changes),
        cmocka_unit_test(who_makes_the_hash_fit_is_parsed_all_the_same),
        cmocka_unit_test(another_model_and_another_method_are_refused),
        cmocka_unit_test(what_cannot_be_had_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
