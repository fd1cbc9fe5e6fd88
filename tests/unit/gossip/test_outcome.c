/* The initiator's signed word on a round. */
#include "tests/check.h"

#include "base/bytes.h"
#include "gossip/signed/outcome.h"

#include <math.h>

static struct identity make_identity(uint8_t number)
{
    uint8_t seed[32] = {number};
    struct identity identity;

    identity_from_seed(seed, &identity);
    return identity;
}

static struct outcome_word make_word(const struct identity *identity)
{
    return (struct outcome_word){
        .key = {identity_peer_id(identity->public_key), {{3, 4}}, UINT64_C(1) << 40},
        .participant = {{9, 8, 7}},
        .state = OUTCOME_COMMITTED};
}

static void a_word_comes_out_as_it_went_in(void **state)
{
    struct identity identity = make_identity(1);
    struct outcome_word word = make_word(&identity), back;
    struct digest run = {{5}}, other_run = {{6}};
    uint8_t bytes[OUTCOME_BYTES];

    (void)state;
    outcome_sign(&word, &identity, run, bytes);
    assert_int_equal(outcome_verify(bytes, run, &back), RC_OK);
    assert_true(peer_id_is_equal(back.key.initiator, word.key.initiator));
    assert_true(boot_id_is_equal(back.key.boot, word.key.boot));
    assert_true(back.key.counter == word.key.counter);
    assert_true(peer_id_is_equal(back.participant, word.participant));
    assert_int_equal(back.state, OUTCOME_COMMITTED);
    assert_int_equal(outcome_verify(bytes, other_run, &back), RC_AUTH);
}

/* No bit of it can be changed on the way, and nobody else can give it. */
static void a_changed_word_is_refused(void **state)
{
    struct identity identity = make_identity(1), other = make_identity(2);
    struct outcome_word word = make_word(&identity), back;
    struct digest run = {{5}};
    uint8_t bytes[OUTCOME_BYTES], forged[OUTCOME_BYTES];

    (void)state;
    outcome_sign(&word, &identity, run, bytes);
    for (size_t bit = 0; bit < 8 * OUTCOME_BYTES; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(outcome_verify(bytes, run, &back), RC_AUTH);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    word.key.initiator = identity_peer_id(other.public_key);
    outcome_sign(&word, &other, run, forged);
    memcpy(forged, bytes, PEER_ID_BYTES); /* another's name, under the own key */
    assert_int_equal(outcome_verify(forged, run, &back), RC_AUTH);
}

/* Signed nonsense is nonsense. */
static void what_is_no_decision_is_refused(void **state)
{
    struct identity identity = make_identity(1);
    struct outcome_word word = make_word(&identity), back;
    struct digest run = {{5}};
    uint8_t bytes[OUTCOME_BYTES];

    (void)state;
    word.state = OUTCOME_UNKNOWN;
    outcome_sign(&word, &identity, run, bytes);
    assert_int_equal(outcome_verify(bytes, run, &back), RC_FORMAT);
    word.state = (enum outcome_state)77;
    outcome_sign(&word, &identity, run, bytes);
    assert_int_equal(outcome_verify(bytes, run, &back), RC_FORMAT);
    word.state = OUTCOME_ABORTED;
    outcome_sign(&word, &identity, run, bytes);
    assert_int_equal(outcome_verify(bytes, run, &back), RC_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_comes_out_as_it_went_in),
        cmocka_unit_test(a_changed_word_is_refused),
        cmocka_unit_test(what_is_no_decision_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
