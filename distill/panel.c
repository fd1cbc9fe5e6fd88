/* panel: see panel.h. */
#include "distill/panel.h"

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "distill/ensemble.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATH_BYTES = 1024 };

struct panel {
    struct panel_options options;
    char path[PATH_BYTES]; /* that it had, for messages */
    int file;
    size_t bytes, values; /* of a sample */
    uint8_t *heard;       /* [samples][members] bits, by (sample * members + member) */
    size_t *answered;     /* [members] */
    uint8_t *entry;       /* [bytes] */
    float *said;          /* [values] */
    struct ensemble *together;
};

static enum rc open_file(struct panel *p, struct fault *why)
{
    const int length =
        snprintf(p->path, sizeof p->path, "%s/.grapevine-answers-XXXXXX", p->options.folder);

    if (length < 0 || (size_t)length >= sizeof p->path) {
        return fault_set(why, RC_LIMIT, "cannot keep answers: the path of the folder is too long");
    }
    p->file = mkstemp(p->path);
    if (p->file < 0) return file_fault(why, "keep answers in", p->path, errno);
    (void)unlink(p->path);
    return RC_OK;
}

enum rc panel_create(const struct panel_options *options, struct panel **panel, struct fault *why)
{
    CHECK(options->samples > 0 && options->members > 0);
    CHECK(options->members <= PANEL_MEMBERS_MAX);
    struct panel *p = mem_alloc(sizeof *p);
    enum rc rc;

    if (p == NULL) return fault_set(why, RC_NOMEM, "cannot keep answers: out of memory");
    p->options = *options;
    p->file = -1;
    p->bytes = predictions_bytes(&options->shape);
    p->values = (size_t)options->shape.rows * options->shape.outputs;
    p->heard = mem_array((options->samples * options->members + 7) / 8, 1);
    p->answered = mem_array(options->members, sizeof *p->answered);
    p->entry = mem_array(p->bytes, 1);
    p->said = mem_array(p->values, sizeof *p->said);
    p->together = ensemble_create(&(struct ensemble_options){.rows = options->shape.rows,
                                                             .classes = options->shape.outputs,
                                                             .temperature = 1,
                                                             .wants = {[VOTE_MEAN] = true},
                                                             .is_real = options->shape.is_real,
                                                             .is_said = !options->shape.is_real,
                                                             .trim = options->trim});
    if (p->heard == NULL || p->answered == NULL || p->entry == NULL || p->said == NULL ||
        p->together == NULL) {
        rc = fault_set(why, RC_NOMEM, "cannot keep answers: out of memory");
    } else {
        rc = open_file(p, why);
    }
    if (rc != RC_OK) {
        panel_destroy(p);
        return rc;
    }
    *panel = p;
    return RC_OK;
}

void panel_destroy(struct panel *panel)
{
    if (panel == NULL) return;
    if (panel->file >= 0) (void)close(panel->file);
    mem_free(panel->heard);
    mem_free(panel->answered);
    mem_free(panel->entry);
    mem_free(panel->said);
    ensemble_destroy(panel->together);
    mem_free(panel);
}

static size_t place(const struct panel *p, uint32_t member, size_t sample)
{
    return sample * p->options.members + member;
}

static bool is_heard(const struct panel *p, uint32_t member, size_t sample)
{
    const size_t bit = place(p, member, sample);

    return (p->heard[bit / 8] >> bit % 8 & 1) != 0;
}

/* A member's answers lie together, one after the other. */
static off_t offset(const struct panel *p, uint32_t member, size_t sample)
{
    return (off_t)((member * p->options.samples + sample) * p->bytes);
}

static enum rc write_all(struct panel *p, const uint8_t *bytes, size_t count, off_t at,
                         struct fault *why)
{
    while (count > 0) {
        const ssize_t done = pwrite(p->file, bytes, count, at);

        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            return file_fault(why, "keep answers in", p->path, done < 0 ? errno : ENOSPC);
        bytes += done;
        count -= (size_t)done;
        at += done;
    }
    return RC_OK;
}

enum rc panel_put(struct panel *panel, uint32_t member, size_t first, size_t count,
                  const uint8_t *bytes, struct fault *why)
{
    const struct panel_options *o = &panel->options;
    enum rc rc = RC_OK;

    CHECK(member < o->members && first <= o->samples && count <= o->samples - first);
    for (size_t i = 0; rc == RC_OK && i < count; i++) {
        rc = predictions_decode(&o->shape, bytes + i * panel->bytes, 1, 1.0, panel->said);
    }
    if (rc != RC_OK) return rc;
    rc = write_all(panel, bytes, count * panel->bytes, offset(panel, member, first), why);
    for (size_t i = first; rc == RC_OK && i < first + count; i++) {
        const size_t bit = place(panel, member, i);

        if (!is_heard(panel, member, i)) panel->answered[member]++;
        panel->heard[bit / 8] |= (uint8_t)(1U << bit % 8);
    }
    return rc;
}

void panel_forget(struct panel *panel, uint32_t member)
{
    CHECK(member < panel->options.members);
    for (size_t i = 0; i < panel->options.samples; i++) {
        const size_t bit = place(panel, member, i);

        panel->heard[bit / 8] &= (uint8_t) ~(1U << bit % 8);
    }
    panel->answered[member] = 0;
}

size_t panel_answered(const struct panel *panel, uint32_t member)
{
    CHECK(member < panel->options.members);
    return panel->answered[member];
}

size_t panel_covered(const struct panel *panel, uint32_t answers)
{
    for (size_t i = 0; i < panel->options.samples; i++) {
        uint32_t heard = 0;
        for (uint32_t m = 0; m < panel->options.members; m++) {
            heard += is_heard(panel, m, i);
        }
        if (heard < answers) return i;
    }
    return panel->options.samples;
}

static enum rc read_entry(struct panel *p, uint32_t member, size_t sample, double temperature,
                          float *out)
{
    size_t done = 0;

    while (done < p->bytes) {
        const ssize_t count = pread(p->file, p->entry + done, p->bytes - done,
                                    offset(p, member, sample) + (off_t)done);

        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return RC_IO;
        done += (size_t)count;
    }
    return predictions_decode(&p->options.shape, p->entry, 1, temperature, out);
}

enum rc panel_said(struct panel *panel, uint32_t member, size_t sample, float *out)
{
    CHECK(is_heard(panel, member, sample));
    return read_entry(panel, member, sample, 1.0, out);
}

enum rc panel_get(struct panel *panel, struct pick pick, double temperature, float *out)
{
    for (uint32_t i = 0; i < pick.rows; i++) {
        const size_t at = pick.first + i, sample = pick.order != NULL ? pick.order[at] : at;

        CHECK(sample < panel->options.samples);
        ensemble_clear(panel->together);
        for (uint32_t m = 0; m < panel->options.members; m++) {
            if (!is_heard(panel, m, sample)) continue;
            const enum rc rc = read_entry(panel, m, sample, temperature, panel->said);
            if (rc != RC_OK) return rc;
            ensemble_absorb(panel->together, 0, panel->options.shape.rows, panel->said);
        }
        ensemble_settle(panel->together, VOTE_MEAN, 0, panel->options.shape.rows,
                        out + i * panel->values);
    }
    return RC_OK;
}
