/*
 * A session that is open, and what the other side may send after that: each step of the input has
 * an end seal a record, renews keys (honestly, or with bytes of the input's own), or joins a
 * connection (honestly, changed, or made up). Honest steps must work as long as the session lives
 * and lead to equal keys; nothing made up may pass; a number passes once.
 */
#include "base/check.h"
#include "gossip/secure/attach.h"

#include <string.h>

enum { STEPS_MAX = 64, INNER_BYTES = 24 };

struct input {
    const uint8_t *at;
    size_t left;
};

struct scene {
    struct swarm_secret swarm;
    struct static_key keys[2];
    struct secure *ends[2]; /* of the initiator, of the responder */
    struct attach_window window;
    uint32_t next_number, number_epoch;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t next_byte(struct input *input)
{
    if (input->left == 0) return 0;
    input->left--;
    return *input->at++;
}

static void next_bytes(struct input *input, uint8_t *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = next_byte(input);
    }
}

static void scene_open(struct scene *scene)
{
    uint8_t first[HANDSHAKE_BYTES_MAX], second[HANDSHAKE_BYTES_MAX];
    size_t first_count = 0, second_count = 0;

    memset(scene, 0, sizeof *scene);
    swarm_secret_derive("fuzz", NULL, &scene->swarm);
    for (uint8_t who = 0; who < 2; who++) {
        uint8_t seed[SECRET_BYTES] = {(uint8_t)(who + 1)};
        struct secure_options options = {.is_initiator = who == 0,
                                         .swarm = &scene->swarm,
                                         .key = &scene->keys[who],
                                         .ephemeral_seed = {(uint8_t)(who + 5)},
                                         .payload = &who,
                                         .payload_bytes = 1};

        static_key_from_seed(seed, &scene->keys[who]);
        scene->ends[who] = secure_create(&options);
        CHECK(scene->ends[who] != NULL);
    }
    CHECK(secure_greet(scene->ends[0], first, &first_count) == RC_OK);
    CHECK(secure_answer(scene->ends[1], first, first_count, second, &second_count) == RC_OK);
    CHECK(secure_answer(scene->ends[0], second, second_count, first, &first_count) == RC_OK);
    CHECK(secure_answer(scene->ends[1], first, first_count, second, &second_count) == RC_OK);
    for (int who = 0; who < 2; who++) {
        secure_choose_suite(scene->ends[who], SUITE_CHACHA20POLY1305);
    }
}

static bool is_alive(const struct scene *scene)
{
    return secure_session(scene->ends[0])->state == SECURE_OPEN &&
           secure_session(scene->ends[1])->state == SECURE_OPEN;
}

/* A record from `who` to the other; `flip` 0: unchanged. */
static void pass_record(struct scene *scene, int who, uint8_t at, uint8_t flip)
{
    uint8_t inner[INNER_BYTES], frame[INNER_BYTES + RECORD_HEADER_BYTES + RECORD_TAG_BYTES];
    const uint8_t *opened;
    size_t count;
    enum rc rc;

    memset(inner, who + 1, sizeof inner);
    CHECK(secure_seal(scene->ends[who], inner, sizeof inner, NULL, 0, frame) == RC_OK);
    frame[at % sizeof frame] ^= flip;
    rc = secure_open(scene->ends[1 - who], frame, sizeof frame, &opened, &count);
    CHECK((rc == RC_OK) == (flip == 0));
    if (rc == RC_OK) CHECK(count == sizeof inner && memcmp(opened, inner, count) == 0);
}

/* `how`: 0 honest, 1 another epoch, 2 keys of the input's own. */
static void renew(struct scene *scene, struct input *input, uint8_t how)
{
    uint8_t seeds[2][SECRET_BYTES], asked[PUBLIC_KEY_BYTES], answer[PUBLIC_KEY_BYTES];
    uint32_t epoch = secure_session(scene->ends[0])->epoch + 1;

    if (!secure_may_rekey(scene->ends[0])) return;
    next_bytes(input, seeds[0], sizeof seeds[0]);
    next_bytes(input, seeds[1], sizeof seeds[1]);
    secure_rekey_start(scene->ends[0], seeds[0], asked);
    if (how == 1) epoch += next_byte(input);
    if (how == 2) next_bytes(input, asked, sizeof asked);
    if (secure_rekey_answer(scene->ends[1], epoch, asked, seeds[1], answer) != RC_OK) {
        CHECK(how != 0);
        return;
    }
    secure_rekey_send(scene->ends[1]); /* the answer itself is not sealed here */
    if (how == 2) next_bytes(input, answer, sizeof answer);
    if (secure_rekey_finish(scene->ends[0], epoch, answer) != RC_OK) CHECK(how != 0);
    if (is_alive(scene) && how == 0) {
        pass_record(scene, 0, 0, 0); /* the other side's direction changes with it */
        pass_record(scene, 1, 0, 0);
    } else if (is_alive(scene)) {
        secure_destroy(scene->ends[0]); /* they may not agree any more: enough */
        secure_destroy(scene->ends[1]);
        scene_open(scene);
    }
}

static void join(struct scene *scene, struct input *input, uint8_t how)
{
    struct attach asked = {.epoch = secure_session(scene->ends[0])->epoch}, heard;
    const uint8_t *mine = secure_exporter(scene->ends[0], asked.epoch), *theirs;
    uint8_t request[ATTACH_BYTES], answer[ATTACH_BYTES], roots[4][SECRET_BYTES];
    uint8_t at = next_byte(input), flip = how == 0 ? 0 : next_byte(input);

    if (scene->number_epoch != asked.epoch) scene->next_number = 0;
    scene->number_epoch = asked.epoch;
    asked.number = scene->next_number;
    memcpy(asked.session_id, secure_session(scene->ends[0])->session_id, SESSION_ID_BYTES);
    next_bytes(input, asked.nonces[0], ATTACH_NONCE_BYTES);
    CHECK(mine != NULL);
    attach_ask(&asked, mine, true, request);
    request[at % ATTACH_BYTES] ^= flip;
    if (!attach_parse(request, sizeof request, &heard)) return;
    theirs = secure_exporter(scene->ends[1], heard.epoch);
    if (theirs == NULL || attach_verify(request, theirs, true) != RC_OK) {
        CHECK(flip != 0);
        return;
    }
    CHECK(flip == 0 && attach_window_accept(&scene->window, heard.epoch, heard.number));
    CHECK(!attach_window_accept(&scene->window, heard.epoch, heard.number));
    scene->next_number += 2;
    next_bytes(input, heard.nonces[1], ATTACH_NONCE_BYTES);
    attach_answer(&heard, request, theirs, false, answer);
    flip = how == 2 ? next_byte(input) : 0;
    answer[at % ATTACH_BYTES] ^= flip;
    CHECK((attach_finish(&asked, answer, sizeof answer, mine, true) == RC_OK) == (flip == 0));
    if (flip != 0) return;
    attach_roots(&asked, mine, roots[0], roots[1]);
    attach_roots(&heard, theirs, roots[2], roots[3]);
    CHECK(memcmp(roots[0], roots[2], 2 * sizeof roots[0]) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct attach_window window = {0};
    struct attach attach;
    struct scene scene;

    CHECK(secure_start() == RC_OK);
    (void)attach_parse(data, size, &attach);
    scene_open(&scene);
    for (int step = 0; step < STEPS_MAX && input.left > 0 && is_alive(&scene); step++) {
        uint8_t what = next_byte(&input);

        switch (what % 4) {
        case 0:
            pass_record(&scene, what / 4 % 2, next_byte(&input), what / 8);
            break;
        case 1:
            renew(&scene, &input, what / 4 % 3);
            break;
        case 2:
            join(&scene, &input, what / 4 % 3);
            break;
        case 3: {
            uint32_t epoch = next_byte(&input) % 4, number = next_byte(&input) * 2u;

            if (attach_window_accept(&window, epoch, number)) {
                CHECK(!attach_window_accept(&window, epoch, number));
            }
            break;
        }
        }
    }
    secure_destroy(scene.ends[0]);
    secure_destroy(scene.ends[1]);
    return 0;
}
