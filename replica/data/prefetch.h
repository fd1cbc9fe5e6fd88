/*
 * prefetch: a thread that makes the next batches while the model trains on this one. Which samples
 * are in a batch is settled by the caller, in order, so the batches are the same to the bit as
 * those made on the spot. One thread beside the caller's; a ring of PREFETCH_DEPTH batches,
 * allocated once.
 */
#ifndef GRAPEVINE_REPLICA_DATA_PREFETCH_H
#define GRAPEVINE_REPLICA_DATA_PREFETCH_H

#include "base/fault.h"
#include "base/rc.h"
#include "replica/data/augment.h"
#include "replica/data/dataset.h"

enum { PREFETCH_DEPTH = 2 };

enum prefetch_mode { PREFETCH_OFF, PREFETCH_AUTO, PREFETCH_ON };

/** `off`, `auto` or `on`; false for anything else. */
bool prefetch_parse(const char *text, enum prefetch_mode *mode);
/** Whether a thread would help: always or never, or (auto) when a processor is left over beside
 *  `threads` computing ones and a batch takes long enough to make, or it is read from files. */
bool prefetch_is_useful(enum prefetch_mode mode, const struct dataset_info *info, uint32_t rows,
                        const struct augment *augment, uint32_t threads);

/* What a batch is made of. */
struct prefetch_order {
    uint32_t *picked; /* [rows]: indices of samples */
    uint64_t *keys;   /* [rows]: for augment_batch(); NULL without augmentation */
};

/* How: borrowed, and changed only while no order is outstanding. */
struct prefetch_options {
    const struct samples *samples;
    const struct dataset_info *info;
    const struct augment *augment;
    uint32_t rows; /* of every batch */
};

/** Room for an order; RC_NOMEM. */
MUST_USE enum rc prefetch_order_init(struct prefetch_order *order,
                                     const struct prefetch_options *options);
void prefetch_order_deinit(struct prefetch_order *order);
/** Make a batch on the spot. `image`: room for one sample's values; only for augmentation. */
void prefetch_fill(const struct prefetch_options *options, const struct prefetch_order *order,
                   float *image, struct batch *batch);

struct prefetch;

/** Starts the thread. RC_NOMEM, RC_LIMIT (no more threads). */
MUST_USE enum rc prefetch_create(const struct prefetch_options *options, struct prefetch **prefetch,
                                 struct fault *why);
/** Ends the thread. NULL is fine. */
void prefetch_destroy(struct prefetch *prefetch);
/** Outstanding orders: submitted and not taken. */
uint32_t prefetch_outstanding(const struct prefetch *prefetch);
/** The order to fill in next; only while fewer than PREFETCH_DEPTH are outstanding. */
struct prefetch_order *prefetch_next(struct prefetch *prefetch);
void prefetch_submit(struct prefetch *prefetch);
/** Wait for the oldest outstanding batch and exchange it for `batch`, whose buffers are used for
 *  another one. */
void prefetch_take(struct prefetch *prefetch, struct batch *batch);
/** Forget all outstanding orders; afterwards the thread reads nothing. */
void prefetch_drain(struct prefetch *prefetch);

#endif
