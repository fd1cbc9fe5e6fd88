/*
 * simulation: a whole swarm in virtual time: complete peers (the shipping node, rounds, links,
 * membership and cryptography) that minimise a quadratic, in a network as bad as asked for. Equal
 * options, equal run, to the bit.
 *
 * Peer i minimises f_i(x) = 1/2 ||x - c_i||^2 with c_i normal of deviation `centre_spread`, by
 * steps of 0.05 on gradients with noise of deviation 0.1; the swarm's optimum is the mean of all
 * c_i. Loss is 1/2
 * ||x - mean c||^2 per value, averaged over live peers: alone a peer ends at 0.5, in a swarm it can
 * get to 0.
 */
#ifndef GRAPEVINE_TESTNET_SIMULATION_H
#define GRAPEVINE_TESTNET_SIMULATION_H

#include "averaging/strategy/strategy.h"
#include "testnet/chaos.h"
#include "testnet/cluster.h"
#include "testnet/spectrum.h"

#include <signal.h>

struct simulation_sample {
    double t_s;      /* virtual */
    double distance; /* sqrt(1/n sum ||x_i - mean||^2) over live peers */
    double loss, loss_of_average;
    uint64_t rounds_ok, rounds_aborted; /* of all peers and their lives */
    double rounds_per_peer;
    uint64_t steps;        /* of the live peers */
    uint64_t bytes;        /* that arrived, framing included */
    uint64_t bytes_across; /* of these, from another site */
    uint64_t faults;       /* caused so far */
    uint32_t live;
};

struct simulation_options {
    uint32_t peers; /* 1 to CLUSTER_PEERS_MAX */
    uint64_t seed;
    const struct strategy *strategy;
    size_t values;
    uint64_t step_ns;            /* what an optimizer step costs */
    const double *speeds;        /* [peers] that divide it; NULL: all 1. Borrowed */
    double centre_spread;        /* deviation of what the peers' own data want; see above */
    double learning_rate, noise; /* 0: as above */
    uint64_t rounds;             /* end when a peer has had so many on average; 0: by time */
    uint64_t time_ns;            /* virtual time at most; 0: an hour */
    double target_loss; /* end when the peers' mean loss is no more; 0: none. Then no peer takes a
                           step before all are linked */
    uint64_t report_ns;
    struct sim_path link;
    uint32_t sites; /* over which peers are spread in turns; 0 or 1: nobody says where it is */
    struct sim_path across;            /* a link between two of them */
    struct chaos chaos;                /* parsed; its clock is started here */
    const volatile sig_atomic_t *stop; /* not 0: end with the slice that runs; NULL: never */
    struct trace *trace;               /* of all peers, in virtual time; NULL: none. Borrowed */
    bool is_still; /* nobody trains: once all are linked, peers are put apart and only average */
    void *context;
    void (*on_sample)(void *context, const struct simulation_sample *sample);
};

struct simulation_result {
    struct simulation_sample last;
    double time_to_target_s; /* virtual, from the first step; NaN: not reached, or none */
    double contraction;      /* still: a round left this share of the distance; else NAN */
    uint64_t events;         /* of the simulated world */
    uint64_t trace;          /* a hash over all of them */
    /* What must hold in the end. */
    bool is_finite;    /* every live peer's parameters are numbers */
    bool has_progress; /* the rounds or the loss asked for came about in the time given; by time
                          alone: any round, if it was long enough for one */
    bool is_one_swarm; /* every live peer trains the same model */
};

/** RC_USAGE with a reason if the strategy does not suit so many peers. */
MUST_USE enum rc simulation_check(const struct simulation_options *options, struct fault *why);
/** The errors of simulation_check(); RC_NOMEM. */
MUST_USE enum rc simulation_run(const struct simulation_options *options,
                                struct simulation_result *result, struct fault *why);
/** By how much a round of the strategy's topology shrinks the distance, see testnet/spectrum.h, of
 *  the members that simulation_run() would start. RC_NOMEM. */
MUST_USE enum rc simulation_spectrum(const struct simulation_options *options,
                                     struct spectrum *spectrum);

#endif
