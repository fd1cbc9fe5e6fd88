/*
 * crash_point: named places at which a test can have this process killed, as if the power went: no
 * exit handler runs, nothing is flushed. They are compiled in always and off unless the environment
 * variable GRAPEVINE_CRASH_POINT=NAME[:COUNT][:stop] names one; then the COUNT-th pass (default:
 * the first) sends SIGKILL to the process itself, or SIGSTOP, for a peer that hangs there until it
 * is sent SIGCONT. `GRAPEVINE_CRASH_POINT=list grapevine` prints all names.
 *
 * A new point is a row here and one call where it belongs; messages have theirs in
 * peer/link/crash_messages.c. tests/tidy.sh sees to it that each row is passed in exactly one
 * place, and tests/e2e/test_crash.sh that peers survive it.
 */
#ifndef GRAPEVINE_BASE_CRASH_POINT_H
#define GRAPEVINE_BASE_CRASH_POINT_H

#include "base/fault.h"
#include "base/rc.h"

/* Messages: SENT is after the bytes were handed to the system, RECEIVED before they are acted on.
 */
#define CRASH_POINTS(X)                                                                            \
    /* pair rounds */                                                                              \
    X(PAIR_OFFER_SENT, "pair:offer-sent")                                                          \
    X(PAIR_OFFER_RECEIVED, "pair:offer-received")                                                  \
    X(PAIR_ACCEPT_SENT, "pair:accept-sent")                                                        \
    X(PAIR_ACCEPT_RECEIVED, "pair:accept-received")                                                \
    X(PAIR_REJECT_SENT, "pair:reject-sent")                                                        \
    X(PAIR_REJECT_RECEIVED, "pair:reject-received")                                                \
    X(PAIR_IN_DOUBT, "pair:in-doubt")                                                              \
    X(PAIR_DOUBT_SETTLED, "pair:doubt-settled")                                                    \
    /* swaps, of pairs and of the edges of a graph */                                              \
    X(SWAP_READY_SENT, "swap:ready-sent")                                                          \
    X(SWAP_READY_RECEIVED, "swap:ready-received")                                                  \
    X(SWAP_COMMIT_SENT, "swap:commit-sent")                                                        \
    X(SWAP_COMMIT_RECEIVED, "swap:commit-received")                                                \
    X(SWAP_OUTCOME_REQ_SENT, "swap:outcome-req-sent")                                              \
    X(SWAP_OUTCOME_REQ_RECEIVED, "swap:outcome-req-received")                                      \
    X(SWAP_OUTCOME_SENT, "swap:outcome-sent")                                                      \
    X(SWAP_OUTCOME_RECEIVED, "swap:outcome-received")                                              \
    /* group rounds */                                                                             \
    X(GROUP_FORM_SENT, "group:form-sent")                                                          \
    X(GROUP_FORM_RECEIVED, "group:form-received")                                                  \
    X(GROUP_JOIN_SENT, "group:join-sent")                                                          \
    X(GROUP_JOIN_RECEIVED, "group:join-received")                                                  \
    X(GROUP_START_SENT, "group:start-sent")                                                        \
    X(GROUP_START_RECEIVED, "group:start-received")                                                \
    X(GROUP_MEAN_SENT, "group:mean-sent")                                                          \
    X(GROUP_MEAN_RECEIVED, "group:mean-received")                                                  \
    X(GROUP_OWN_ABSORBED, "group:own-absorbed")                                                    \
    X(GROUP_REDUCED, "group:reduced")                                                              \
    X(GROUP_MEAN_CHUNK_QUEUED, "group:mean-chunk-queued")                                          \
    X(GROUP_MEAN_CHUNK_RECEIVED, "group:mean-chunk-received")                                      \
    X(SCHEDULE_ADDED_UP, "schedule:added-up")                                                      \
    X(SCHEDULE_MEAN_KEPT, "schedule:mean-kept")                                                    \
    X(GROUP_MEAN_AGREED, "group:mean-agreed")                                                      \
    /* pushed shares */                                                                            \
    X(PUSH_SHARE_SENT, "push:share-sent")                                                          \
    X(PUSH_SHARE_RECEIVED, "push:share-received")                                                  \
    X(PUSH_ACK_SENT, "push:ack-sent")                                                              \
    X(PUSH_ACK_RECEIVED, "push:ack-received")                                                      \
    /* rounds over the edges of a graph */                                                         \
    X(EDGE_OPEN_SENT, "edge:open-sent")                                                            \
    X(EDGE_OPEN_RECEIVED, "edge:open-received")                                                    \
    /* rounds of any kind */                                                                       \
    X(ROUND_CREDIT_SENT, "round:credit-sent")                                                      \
    X(ROUND_CREDIT_RECEIVED, "round:credit-received")                                              \
    X(ROUND_ABORT_SENT, "round:abort-sent")                                                        \
    X(ROUND_ABORT_RECEIVED, "round:abort-received")                                                \
    X(ROUND_SNAPSHOT_WANTED, "round:snapshot-wanted")                                              \
    X(ROUND_SNAPSHOT_TAKEN, "round:snapshot-taken")                                                \
    X(ROUND_CHUNK_ENCODED, "round:chunk-encoded")                                                  \
    X(ROUND_ENCODED, "round:encoded")                                                              \
    X(ROUND_CHUNK_QUEUED, "round:chunk-queued")                                                    \
    X(ROUND_CHUNK_RECEIVED, "round:chunk-received")                                                \
    X(ROUND_CHUNK_ABSORBED, "round:chunk-absorbed")                                                \
    X(ROUND_CHUNK_CHECKED, "round:chunk-checked")                                                  \
    X(ROUND_COMMITTED, "round:committed")                                                          \
    X(ROUND_ABORTED, "round:aborted")                                                              \
    X(ROUND_SETTLING, "round:settling")                                                            \
    X(ROUND_SETTLED, "round:settled")                                                              \
    X(ROUND_APPLYING, "round:applying")                                                            \
    X(ROUND_APPLIED, "round:applied")                                                              \
    X(ROUND_DONE, "round:done")                                                                    \
    /* joining, and the donor's side of it */                                                      \
    X(JOIN_PROGRESS_SENT, "join:progress-sent")                                                    \
    X(JOIN_PROGRESS_RECEIVED, "join:progress-received")                                            \
    X(JOIN_STATE_REQ_SENT, "join:state-req-sent")                                                  \
    X(JOIN_STATE_REQ_RECEIVED, "join:state-req-received")                                          \
    X(JOIN_MANIFEST_SENT, "join:manifest-sent")                                                    \
    X(JOIN_MANIFEST_RECEIVED, "join:manifest-received")                                            \
    X(JOIN_BUCKET_REQ_SENT, "join:bucket-req-sent")                                                \
    X(JOIN_BUCKET_REQ_RECEIVED, "join:bucket-req-received")                                        \
    X(JOIN_BUCKET_QUEUED, "join:bucket-queued")                                                    \
    X(JOIN_BUCKET_RECEIVED, "join:bucket-received")                                                \
    X(JOIN_STATE_DONE_SENT, "join:state-done-sent")                                                \
    X(JOIN_STATE_DONE_RECEIVED, "join:state-done-received")                                        \
    X(JOIN_SNAPSHOT_COPIED, "join:snapshot-copied")                                                \
    X(JOIN_ASSIGNING, "join:assigning")                                                            \
    X(JOIN_ASSIGNED, "join:assigned")                                                              \
    X(COPY_ASSIGNING, "copy:assigning")                                                            \
    X(COPY_ASSIGNED, "copy:assigned")                                                              \
    /* checkpoints, and every file that is replaced */                                             \
    X(CHECKPOINT_BEGUN, "checkpoint:begun")                                                        \
    X(CHECKPOINT_ENCODED, "checkpoint:encoded")                                                    \
    X(CHECKPOINT_STATE_WRITTEN, "checkpoint:state-written")                                        \
    X(CHECKPOINT_MODEL_WRITTEN, "checkpoint:model-written")                                        \
    X(CHECKPOINT_DONE, "checkpoint:done")                                                          \
    X(FILE_TEMPORARY_OPENED, "file:temporary-opened")                                              \
    X(FILE_HALF_WRITTEN, "file:half-written")                                                      \
    X(FILE_WRITTEN, "file:written")                                                                \
    X(FILE_SYNCED, "file:synced")                                                                  \
    X(FILE_RENAMED, "file:renamed")

#define CRASH_POINT_ID(id, name) CRASH_##id,
enum crash_point { CRASH_NONE, CRASH_POINTS(CRASH_POINT_ID) CRASH_COUNT };
#undef CRASH_POINT_ID

/** Die (or hang) here, if this is the pass that was asked for. Any thread. CRASH_NONE is fine. */
void crash_point(enum crash_point point);
const char *crash_point_name(enum crash_point point);
/** `text`: NAME[:COUNT][:stop], or NULL for none. RC_PARSE: there is no such point. Before threads
 * begin.
 */
MUST_USE enum rc crash_point_arm(const char *text, struct fault *why);

#endif
