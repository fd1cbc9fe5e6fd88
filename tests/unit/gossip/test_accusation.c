/* Signed accusations: who says so, about which life of whom, in which run. */
#include "tests/check.h"

#include "gossip/signed/accusation.h"

struct scene {
    struct identity accuser;
    struct digest run_id;
    struct accusation accusation;
    uint8_t bytes[ACCUSATION_BYTES];
};

static void scene_make(struct scene *scene)
{
    uint8_t seed[SECRET_BYTES] = {7};

    memset(scene, 0, sizeof *scene);
    identity_from_seed(seed, &scene->accuser);
    scene->run_id = hash_of("run", 3);
    scene->accusation.accuser = identity_peer_id(scene->accuser.public_key);
    memset(scene->accusation.subject.bytes, 4, PEER_ID_BYTES);
    memset(scene->accusation.boot.bytes, 5, BOOT_ID_BYTES);
    scene->accusation.accuser_incarnation = UINT64_MAX;
    scene->accusation.incarnation = 1;
    accusation_sign(&scene->accusation, &scene->accuser, scene->run_id, scene->bytes);
}

/* What was signed is what is read, and it verifies. */
static void an_accusation_comes_out_as_it_went_in(void **state)
{
    struct scene scene;
    struct accusation read;

    (void)state;
    scene_make(&scene);
    memset(&read, 0, sizeof read);
    accusation_read(scene.bytes, &read);
    assert_memory_equal(&read.accuser, &scene.accusation.accuser, PEER_ID_BYTES);
    assert_memory_equal(&read.subject, &scene.accusation.subject, PEER_ID_BYTES);
    assert_memory_equal(&read.boot, &scene.accusation.boot, BOOT_ID_BYTES);
    assert_true(read.accuser_incarnation == UINT64_MAX);
    assert_int_equal(read.incarnation, 1);
    assert_int_equal(accusation_verify(scene.bytes, scene.accuser.public_key, scene.run_id), RC_OK);
}

/* Every bit counts, and so do the run and the accuser's key. */
static void whatever_is_changed_does_not_verify(void **state)
{
    struct scene scene;
    uint8_t seed[SECRET_BYTES] = {8};
    struct identity other;

    (void)state;
    scene_make(&scene);
    for (size_t i = 0; i < ACCUSATION_BYTES; i++) {
        scene.bytes[i] ^= 0x20;
        assert_int_equal(accusation_verify(scene.bytes, scene.accuser.public_key, scene.run_id),
                         RC_AUTH);
        scene.bytes[i] ^= 0x20;
    }
    assert_int_equal(
        accusation_verify(scene.bytes, scene.accuser.public_key, hash_of("another", 7)), RC_AUTH);
    identity_from_seed(seed, &other);
    assert_int_equal(accusation_verify(scene.bytes, other.public_key, scene.run_id), RC_AUTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_accusation_comes_out_as_it_went_in),
        cmocka_unit_test(whatever_is_changed_does_not_verify),
    };

    if (secure_start() != RC_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
