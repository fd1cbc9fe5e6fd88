/*
 * export: a history for other programs: CSV, a line a report, and event files for TensorBoard.
 * Blocking file access: commands only.
 */
#ifndef GRAPEVINE_TESTNET_EXPORT_H
#define GRAPEVINE_TESTNET_EXPORT_H

#include "testnet/history.h"

/** RFC 4180: "peer" and the columns of history.h; what is not known is empty. RC_IO, RC_NOMEM. */
MUST_USE enum rc export_csv(const char *path, const struct history *history, struct fault *why);
/** FOLDER/NAME/events.out.tfevents.grapevine for each peer, made anew: records of length, masked
 *  CRC-32C, data, masked CRC-32C (tensorflow/core/lib/io/record_writer.h). Steps are own_steps
 *  where they are known. RC_IO, RC_NOMEM. */
MUST_USE enum rc export_tensorboard(const char *folder, const struct history *history,
                                    struct fault *why);

#endif
