/*
 * times: all times of the exchanges, in one table. Nobody can configure any of them. How long a
 * peer waits it mostly learns (deadline.h); here is where that begins, and within which bounds.
 */
#ifndef GRAPEVINE_AVERAGING_CORE_TIMES_H
#define GRAPEVINE_AVERAGING_CORE_TIMES_H

#include "averaging/core/deadline.h"
#include "base/bytes.h"

/* ---- what is learned: first, least, least of who is not proven, most, samples until then ---- */

/* To OFFER and SHARE: a partner may be in the middle of a step. */
static const struct deadline_bounds times_answer = {5 * NS_PER_S, 2 * NS_PER_S, 400 * NS_PER_MS,
                                                    5 * NS_PER_S, DEADLINE_FEW};
/* From READY to COMMIT: the end that decides may still be taking in our plane. */
static const struct deadline_bounds times_decision = {10 * NS_PER_S, 2 * NS_PER_S, 400 * NS_PER_MS,
                                                      10 * NS_PER_S, DEADLINE_FEW};
/* All of a plane, by whole rounds with one partner; `first` is for the slowest line besides. */
static const struct deadline_bounds times_plane = {30 * NS_PER_S, 5 * NS_PER_S, NS_PER_S,
                                                   600 * NS_PER_S, 1};
/* The first chunk of a share: the sender is in the middle of a step, or of an evaluation. */
static const struct deadline_bounds times_chunk = {600 * NS_PER_S, 2 * NS_PER_S, 400 * NS_PER_MS,
                                                   600 * NS_PER_S, DEADLINE_FEW};
/* A neighbour's OPEN: neighbours begin their rounds a step apart, or two. */
static const struct deadline_bounds times_open = {5 * NS_PER_S, NS_PER_S, NS_PER_S, 30 * NS_PER_S,
                                                  DEADLINE_FEW};
/* From then on until an edge counts; `first` is for the slowest line besides. */
static const struct deadline_bounds times_edge = {4 * NS_PER_S, 2500 * NS_PER_MS, 2500 * NS_PER_MS,
                                                  120 * NS_PER_S, DEADLINE_FEW};
/* JOIN after FORM; the most is a pace, or this. */
static const struct deadline_bounds times_join = {NS_PER_S, 100 * NS_PER_MS, 100 * NS_PER_MS,
                                                  2 * NS_PER_S, 1};

/* ---- whom rounds wait for, and how long (patience.h) ---- */

#define PACE_UNKNOWN_NS (2 * NS_PER_S)     /* from round to round, before it is known */
#define CREDIT_LEAST_NS (500 * NS_PER_MS)  /* peers that share cores stumble for as long */
#define CREDIT_USUAL_NS (4 * NS_PER_S)     /* most of three paces, */
#define CREDIT_MOST_NS  (30 * NS_PER_S)    /* and of a share of a long one */
#define BESIDE_MOST_NS  (4 * NS_PER_S)     /* ...for an answer, where training goes on */
#define STILL_LEAST_NS  (2500 * NS_PER_MS) /* nothing happens in a group's data: a pace, */
#define STILL_MOST_NS   (300 * NS_PER_S)   /* ...within these */

/* ---- lines ---- */

#define SLOW_LINE_NS   UINT64_C(800)     /* a byte at 10 Mbit/s, the slowest that is waited for */
#define ANSWER_MOST_NS (3 * NS_PER_S)    /* over a line: how soon one answers is up to it */
#define START_LATE_NS  (150 * NS_PER_MS) /* after who has it already has allowed us chunks */

/* ---- what outlives rounds ---- */

#define DOUBT_NS        (30 * NS_PER_S)   /* a promise or a share blocks what comes after it */
#define CUSTODY_NS      (600 * NS_PER_S)  /* then a share is given up */
#define ASK_AFTER_NS    (2 * NS_PER_S)    /* what became of it; acknowledgements take no longer */
#define ASK_AGAIN_NS    (5 * NS_PER_S)    /* one that owes an answer: then it is charged */
#define PUT_OFF_MOST_NS (3600 * NS_PER_S) /* who breaks promises */
#define FORM_FORGET_NS  (5 * NS_PER_S)    /* a proposal that did not start */
#define RETRY_LEAST_NS  (10 * NS_PER_MS)  /* to ask one that is busy again */
#define RETRY_MOST_NS   NS_PER_S
#define RETRY_SHARE_NS  (200 * NS_PER_MS) /* ...that takes in another share */

#endif
