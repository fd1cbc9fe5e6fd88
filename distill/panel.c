/* panel: see panel.h. */
#include "distill/panel.h"

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"

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
    float *said;          /* [members][values] */
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
    p->said = mem_array(options->members * p->values, sizeof *p->said);
    if (p->heard == NULL || p->answered == NULL || p->entry == NULL || p->said == NULL) {
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

/* The mean of `count` values without the `trim` largest and smallest; they are sorted. */
static float trimmed_mean(float *values, uint32_t count, uint32_t trim)
{
    const uint32_t drop = trim < (count - 1) / 2 ? trim : (count - 1) / 2;
    double sum = 0;

    for (uint32_t i = 1; i < count; i++) {
        const float value = values[i];
        uint32_t at = i;
        for (; at > 0 && values[at - 1] > value; at--) {
            values[at] = values[at - 1];
        }
        values[at] = value;
    }
    for (uint32_t i = drop; i < count - drop; i++) {
        sum += (double)values[i];
    }
    return (float)(sum / (count - 2 * drop));
}

/* What `count` members said of a sample, in `said`, becomes one answer. */
static void combine(const struct panel *p, uint32_t count, float *out)
{
    const struct predictions_shape *shape = &p->options.shape;

    for (uint32_t row = 0; row < shape->rows; row++) {
        float *to = out + (size_t)row * shape->outputs;
        double sum = 0;

        for (uint32_t c = 0; c < shape->outputs; c++) {
            float values[PANEL_MEMBERS_MAX];
            for (uint32_t m = 0; m < count; m++) {
                values[m] = p->said[m * p->values + (size_t)row * shape->outputs + c];
            }
            to[c] = trimmed_mean(values, count, p->options.trim);
            sum += (double)to[c];
        }
        /* Members that each know another class leave next to nothing when trimmed: even then it is
         * a distribution. */
        for (uint32_t c = 0; !shape->is_real && c < shape->outputs; c++) {
            to[c] = sum > 1e-30 ? (float)((double)to[c] / sum) : 1.0F / (float)shape->outputs;
        }
    }
}

enum rc panel_get(struct panel *panel, struct pick pick, double temperature, float *out)
{
    for (uint32_t i = 0; i < pick.rows; i++) {
        const size_t at = pick.first + i, sample = pick.order != NULL ? pick.order[at] : at;
        uint32_t count = 0;

        CHECK(sample < panel->options.samples);
        for (uint32_t m = 0; m < panel->options.members; m++) {
            if (!is_heard(panel, m, sample)) continue;
            const enum rc rc =
                read_entry(panel, m, sample, temperature, panel->said + count * panel->values);
            if (rc != RC_OK) return rc;
            count++;
        }
        CHECK(count > 0);
        combine(panel, count, out + i * panel->values);
    }
    return RC_OK;
}
