/*
 * rounds_chaos: what the tests of all exchanges do to peers in the middle of their rounds, and what
 * must be over some time after it.
 */
#ifndef GRAPEVINE_TESTS_ROUNDS_CHAOS_H
#define GRAPEVINE_TESTS_ROUNDS_CHAOS_H

#include "tests/property/rounds_run.h"

static inline void rounds_heal_all(struct rounds *r)
{
    for (uint32_t a = 0; a < r->peers_count; a++) {
        for (uint32_t b = 0; b < r->peers_count; b++) {
            rounds_heal(r, a, b);
        }
    }
}

/** Everyone lives and is linked with everyone. */
static inline void rounds_all_back(struct rounds *r)
{
    for (uint32_t a = 0; a < r->peers_count; a++) {
        rounds_restart(r, a, NULL, 0);
    }
    rounds_heal_all(r);
}

/** Cuts at random moments that heal before anybody gives up. */
static inline void rounds_cut_often(struct rounds *r, int times)
{
    struct rng chaos;

    rng_init(&chaos, r->seed, 99);
    for (int i = 0; i < times; i++) {
        uint32_t a = (uint32_t)rng_below(&chaos, r->peers_count);
        uint32_t b = (uint32_t)rng_below(&chaos, r->peers_count);

        rounds_run(r, rng_below(&chaos, 100 * NS_PER_MS));
        rounds_cut(r, a, b);
        rounds_run(r, rng_below(&chaos, 60 * NS_PER_MS));
        rounds_heal_all(r);
    }
}

/** Kills at random moments, and new lives; in the end all are back. */
static inline void rounds_kill_often(struct rounds *r, int times)
{
    struct rng chaos;

    rng_init(&chaos, r->seed, 99);
    for (int i = 0; i < times; i++) {
        uint32_t a = (uint32_t)rng_below(&chaos, r->peers_count);

        rounds_run(r, rng_below(&chaos, 150 * NS_PER_MS));
        if (rng_below(&chaos, 3) == 0) {
            rounds_kill(r, a);
        } else {
            rounds_restart(r, a, NULL, 0);
            rounds_heal(r, a, (a + 1) % r->peers_count);
        }
    }
    rounds_all_back(r);
}

/** Kills, new lives and cuts that stay, at random moments; in the end all are back. */
static inline void rounds_disturb(struct rounds *r, int times)
{
    struct rng chaos;

    rng_init(&chaos, r->seed, 99);
    for (int i = 0; i < times; i++) {
        uint32_t a = (uint32_t)rng_below(&chaos, r->peers_count);
        uint32_t b = (uint32_t)rng_below(&chaos, r->peers_count);

        rounds_run(r, rng_below(&chaos, 120 * NS_PER_MS));
        switch (rng_below(&chaos, 5)) {
        case 0:
            rounds_kill(r, a);
            break;
        case 1:
            rounds_cut(r, a, b);
            break;
        case 2:
            rounds_heal(r, a, b);
            break;
        default:
            rounds_restart(r, a, NULL, 0);
            break;
        }
    }
    rounds_all_back(r);
}

/** It says and hears nothing more; what is under way is lost, and nobody is told. */
static inline void rounds_freeze(struct rounds *r, uint32_t index)
{
    for (uint32_t i = 0; i < r->peers_count; i++) {
        r->links[index][i].epoch++;
        r->links[i][index].epoch++;
        r->links[index][i].is_up = r->links[i][index].is_up = false;
    }
}

/** Begins no more rounds; after `for_ns` those that were begun are over, and no doubt is left. */
static inline void rounds_rest(struct rounds *r, uint64_t for_ns)
{
    r->is_learning = false;
    rounds_run(r, for_ns);
    for (uint32_t i = 0; i < r->peers_count; i++) {
        if (!r->peers[i].is_alive) continue;
        check_seed(r->seed, !exchange_is_active(r->peers[i].exchange));
        for (int j = 0; j < 4; j++) {
            check_seed(r->seed, !r->peers[i].doubts[j].is_used);
        }
    }
}

#endif
