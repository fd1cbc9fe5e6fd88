/*
 * spectrum: by how much a round of averaging brings peers together, from the matrices it mixes by.
 *
 * A round is x <- W x for the column of all peers' values, W doubly stochastic, so the mean stays
 * and the rest shrinks by rho = ||W - J||, J = 1 1'/n: for a symmetric W the second largest modulus
 * of an eigenvalue. The gap is 1 - rho. Where W changes with the round: the D-th root of the norm
 * of the product over one period of D rounds, or, where it is drawn, the root of the share of the
 * mean square that is left in expectation.
 */
#ifndef GRAPEVINE_TESTNET_SPECTRUM_H
#define GRAPEVINE_TESTNET_SPECTRUM_H

#include "gossip/overlay/topology.h"

struct spectrum {
    double rho;          /* a round leaves this share of the distance; 0: the exact mean */
    double second, last; /* second largest and smallest eigenvalue; NAN where W changes */
    uint32_t period;     /* rounds after which matrices repeat; 0: drawn at random each time */
    bool is_expected;    /* over what is drawn; else for the worst starting values */
};

/**
 * Of `topology` among `ids` (ascending). `by_pairs`: a round takes one edge of each peer, drawn
 * among those of the graph (ad-psgd), instead of all edges.
 * Errors  RC_NOMEM; RC_USAGE for a topology that mixes no model (none at present).
 * Source  Boyd, Ghosh, Prabhakar, Shah 2006, "Randomized gossip algorithms"; Ryabinin et al. 2021,
 *         arXiv:2103.03239, for groups; Lanczos 1950 for the eigenvalues, with the orthogonality
 *         of all vectors restored at each step, and Fourier's coefficients for circulant matrices.
 */
MUST_USE enum rc spectrum_of(const struct topology *topology, bool by_pairs, struct digest run_id,
                             const struct peer_id *ids, uint32_t count, struct spectrum *spectrum);

#endif
