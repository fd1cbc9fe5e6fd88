/*
 * panel: what several members said of the samples of a probe set, and what they say together. Each
 * sample's answers are kept as they came, in a file without a name, so memory does not follow the
 * number of members; who left or died keeps its say. Together: the trimmed mean (ensemble.h).
 * Thread: the command's, one at a time.
 */
#ifndef GRAPEVINE_DISTILL_PANEL_H
#define GRAPEVINE_DISTILL_PANEL_H

#include "base/fault.h"
#include "base/rc.h"
#include "distill/predictions.h"
#include "replica/data/samples.h"

enum { PANEL_MEMBERS_MAX = 64 };

struct panel;

struct panel_options {
    struct predictions_shape shape;
    size_t samples;   /* of the probe set, at least 1 */
    uint32_t members; /* at most PANEL_MEMBERS_MAX */
    uint32_t trim;
    const char *folder; /* for the file: as large as all answers; it is gone when the panel is */
};

/** RC_NOMEM, RC_IO, RC_DISK_FULL. */
MUST_USE enum rc panel_create(const struct panel_options *options, struct panel **panel,
                              struct fault *why);
void panel_destroy(struct panel *panel);
/** Keep what `member` said of the samples from `first` on, `bytes` of predictions_bytes() each.
 * What it said of one of them before is replaced. RC_FORMAT, RC_NONFINITE: nothing an honest member
 *  says, and nothing is kept; RC_DISK_FULL, RC_IO: told in `why`. */
MUST_USE enum rc panel_put(struct panel *panel, uint32_t member, size_t first, size_t count,
                           const uint8_t *bytes, struct fault *why);
/** All that it said counts no more. */
void panel_forget(struct panel *panel, uint32_t member);
/** Samples that it answered. */
size_t panel_answered(const struct panel *panel, uint32_t member);
/** Samples from the first on of which each has at least so many answers. */
size_t panel_covered(const struct panel *panel, uint32_t answers);
/** [pick.rows][rows][outputs]: what the members say together, each at `temperature`. All picked
 *  samples have an answer. RC_IO. */
MUST_USE enum rc panel_get(struct panel *panel, struct pick pick, double temperature, float *out);
/** The same of one member alone, of one sample it answered. */
MUST_USE enum rc panel_said(struct panel *panel, uint32_t member, size_t sample, float *out);

#endif
