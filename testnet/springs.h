/*
 * springs: how strong those along a graph's edges may be. A round is x <- (I - alpha L) x with L
 * the graph's Laplacian (degrees less neighbours), so peers drift apart unless alpha is below
 * 2 / lambda_max(L).
 */
#ifndef GRAPEVINE_TESTNET_SPRINGS_H
#define GRAPEVINE_TESTNET_SPRINGS_H

#include "averaging/strategy/strategy.h"

/**
 * RC_USAGE with the limit if the strategy's springs drive so many peers apart; RC_OK where it has
 * none. RC_NOMEM. `random` graphs are another for each swarm: this is about one of them.
 * Source  Zhang, Choromanska, LeCun 2014, arXiv:1412.6651; power iteration for lambda_max.
 */
MUST_USE enum rc springs_check(const struct strategy *strategy, uint32_t peers, struct fault *why);

#endif
