/*
 * What this peer claims of itself. At each snapshot for a round the state is copied and hashed, and
 * the hash is told to all neighbours before the snapshot is: it is what the others hold it to. The
 * copy of the snapshot before stays, for who is drawn to see it.
 *
 * A claim begins where the one before ends, so a true interval cannot be shown twice: the counter
 * of steps is part of a state, and the state that a round leaves is known to all who were in it.
 */
#include "peer/node/verify/internal.h"

#include "averaging/rule/rule.h"
#include "base/hash_wide.h"

/* ---- what can be claimed at all ---- */

static const char *why_not(const struct node *node)
{
    const struct strategy *strategy = node->options.strategy;

    if (!strategy->is_averaging || !rounds_are_common(node))
        return "rounds of this method are not the same for all";
    if (strategy->rule != &rule_mean || strategy->has_feedback || strategy->blends ||
        strategy_has_masks(strategy) || strategy->aggregate.ops != NULL)
        return "what a round of this method comes to is not known to all";
    if (strategy->moments != MOMENTS_KEEP || strategy->tracks || strategy->quasi_global > 0 ||
        strategy->pull_steps > 0 || strategy->mixes_answers)
        return "this method takes other steps than the optimizer's";
    if (!strategy->codec.traits.is_lossless) return "the codec rounds what is told";
    if (node->options.rate_scaling != RATE_AS_GIVEN) return "--lr-scaling changes the rate";
    if (lane_snapshot(node) != NULL) return "this peer computes on a device";
    return NULL;
}

bool verify_is_on(const struct node *node)
{
    return node->verify != NULL && node->verify->why_not == NULL;
}

enum rc verify_create(struct node *node)
{
    if (!(node->options.verify > 0)) return RC_OK;
    node->verify = mem_alloc(sizeof *node->verify);
    if (node->verify == NULL) return RC_NOMEM;
    rng_init(&node->verify->rng, rng_u64(&node->rng), 0x76657269);
    node->verify->dearness = 1;
    node->verify->why_not = why_not(node);
    if (node->verify->why_not == NULL && !repeat_is_possible(lane_learner(node))) {
        node->verify->why_not = "its steps are not the same to the bit elsewhere (samples changed "
                                "at random, threads without locks, lbfgs, devices)";
    }
    if (node->verify->why_not != NULL) {
        log_warn(node->options.log, "--verify: nobody can check this peer, nor it others: %s",
                 node->verify->why_not);
    }
    return RC_OK;
}

void verify_claims_deinit(struct verify_claims *claims)
{
    for (size_t i = 0; i < ARRAY_COUNT(claims->states); i++) {
        repeat_state_deinit(&claims->states[i]);
    }
}

void verify_destroy(struct node *node)
{
    struct verify *verify = node->verify;

    if (verify == NULL) return;
    verify_claims_deinit(&verify->claims);
    verify_showing_end(verify);
    verify_check_end(verify);
    mem_free(verify);
}

/* ---- at snapshots ---- */

/* Rounds settle one after the other, so what the last one came to stays while the next begins. */
struct digest verify_agreed_digest(const struct node *node, uint64_t round)
{
    static const struct digest none;
    const float *agreed = round_last_agreed(node->round, round);

    return agreed == NULL ? none : hash_wide_of(agreed, node->mixed * sizeof *agreed);
}

void verify_snapshot(struct node *node)
{
    struct verify_claims *claims;
    struct repeat_state *state;
    const uint64_t begun_ns = node_now(node);

    if (!verify_is_on(node)) return;
    claims = &node->verify->claims;
    state = &claims->states[1 - claims->last];
    claims->rc = repeat_take(lane_learner(node), state);
    if (claims->rc == RC_OK) claims->digest = repeat_digest(state);
    if (claims->round > 0) claims->agreed = verify_agreed_digest(node, claims->round);
    claims->took_ns = node_now(node) - begun_ns;
}

/* Steps from the state before to this one. */
static uint64_t steps_of(const struct verify_claims *claims)
{
    return claims->states[claims->last].step - claims->states[1 - claims->last].step;
}

static bool is_claimable(const struct verify_claims *claims)
{
    const struct repeat_state *from = &claims->states[1 - claims->last];
    const struct repeat_state *to = &claims->states[claims->last];

    if (claims->number == 0 || claims->is_void || from->values[SECTION_PARAMETERS] == 0)
        return false;
    if (claims->has_round && claims->round == 0) return false;
    if (!digest_is_equal(from->recipe, to->recipe)) return false;
    return to->step > from->step && steps_of(claims) <= REPEAT_STEPS_MAX &&
           claims->before <= steps_of(claims);
}

void verify_snapshot_taken(struct node *node)
{
    struct verify_claims *claims;
    struct message message = {.type = MESSAGE_CLAIM};

    if (!verify_is_on(node)) return;
    claims = &node->verify->claims;
    node->verify->take_ns += claims->took_ns;
    if (claims->rc != RC_OK) { /* there is nothing to begin from either */
        repeat_state_deinit(&claims->states[1 - claims->last]);
        claims->has_interval = false;
        claims->is_void = true;
        return;
    }
    claims->last = 1 - claims->last;
    claims->has_interval = is_claimable(claims);
    claims->number++;
    node->verify->recipe = claims->states[claims->last].recipe;
    node->verify->has_recipe = true;
    message.as.claim = (struct message_claim){
        .number = claims->number,
        .state = claims->digest,
        .recipe = node->verify->recipe,
        .steps = claims->has_interval ? (uint32_t)steps_of(claims) : 0,
        .before = claims->has_interval ? claims->before : 0,
        .round = claims->has_interval && claims->has_round ? claims->round : 0,
    };
    if (message.as.claim.round > 0) message.as.claim.agreed = claims->agreed;
    claims->is_void = claims->has_round = false;
    claims->round = 0;
    claims->before = 0;
    links_send_all(node->links, &message);
}

/* Between two snapshots one round's result comes in at most: that of the first. */
void verify_applied(struct node *node)
{
    struct verify_claims *claims;
    const struct round_stats stats = rounds_stats(node);

    if (!verify_is_on(node)) return;
    claims = &node->verify->claims;
    if (claims->has_round) claims->is_void = true;
    claims->has_round = true;
    claims->round = stats.is_last_whole ? stats.last_round : 0;
    claims->before = (uint32_t)(node->step - claims->states[claims->last].step);
}

void verify_void(struct node *node)
{
    if (verify_is_on(node)) node->verify->claims.is_void = true;
}
