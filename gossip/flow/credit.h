/*
 * credit: how much may be on its way to this peer. Whoever sends bulk sends what it was allowed to
 * and no more; all that is allowed at one time, to all neighbours and for all purposes, comes out
 * of one budget, in equal shares of the streams that are open. Nothing is counted here: what is out
 * is what the streams themselves know, so that a stream that ends has given back what it held.
 * Pure.
 */
#ifndef GRAPEVINE_GOSSIP_FLOW_CREDIT_H
#define GRAPEVINE_GOSSIP_FLOW_CREDIT_H

#include <stdint.h>

/* A round with 64 members leaves each a share of a megabyte: more than a fast line needs. */
#define CREDIT_BUDGET_BYTES (UINT64_C(64) << 20)

/* What some streams hold. */
struct credit_use {
    uint64_t bytes;   /* allowed, and not yet dealt with */
    uint32_t streams; /* open, whether they hold any or not */
};

struct credit_use credit_sum(struct credit_use a, struct credit_use b);
/** How much of `wanted` bytes a stream may be allowed now that holds `own`; `all` counts it, too.
 * In whole `unit`s; 0 until half of its share is free, so that credit travels in few messages. A
 *  share is a unit at least, as far as the budget goes. */
uint64_t credit_room(uint64_t budget, struct credit_use all, uint64_t own, uint64_t wanted,
                     uint64_t unit);

#endif
