/*
 * distill_lineup: the models of a distillation beside each other: each teacher, what becomes of
 * their parameters and of their answers, the student, the same on labels alone, and whatever files
 * the user names (a quantised student, a peer alone with as many samples). Thread: the command's.
 */
#include "distill/distill_internal.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/shell.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Costs are measured of so many teachers; of further ones with as many parameters they are those of
 * the last. */
enum { MEASURED = 16, NAME_BYTES = 96, COMMAND_BYTES = 1 << 16 };

struct filling {
    struct judge *judge;
    const struct distill_options *options;
    struct distill_result *out;
    char *command;     /* [COMMAND_BYTES] */
    struct judged one; /* what the last teacher costs */
    struct judged all; /* what they cost together */
};

static enum rc add(struct filling *f, const char *name, const char *file, const char *command,
                   const struct judged *judged, struct fault *why)
{
    const enum rc rc = lineup_add(&f->out->lineup, name, file, command, judged);

    return rc == RC_OK ? rc : fault_set(why, rc, "cannot distil: out of memory");
}

/* "grapevine VERB FILE... REST..." of the members, or those that are in; NULL: too long to be of
 * use. */
static const char *command_of(struct filling *f, const char *verb, const bool *is_in,
                              const char *const *rest)
{
    const struct comparison *c = &f->out->teachers;
    size_t at = shell_add(f->command, COMMAND_BYTES, 0, "grapevine");

    if (f->options->keeps_nothing) return NULL; /* no teacher will be there */
    at = shell_add(f->command, COMMAND_BYTES, at, verb);
    for (size_t i = 0; i < c->count; i++) {
        if (is_in == NULL || is_in[i]) at = shell_add(f->command, COMMAND_BYTES, at, c->paths[i]);
    }
    if (f->options->data != NULL) {
        at = shell_add(f->command, COMMAND_BYTES, at, "--data");
        at = shell_add(f->command, COMMAND_BYTES, at, f->options->data);
    }
    for (; *rest != NULL; rest++) {
        at = shell_add(f->command, COMMAND_BYTES, at, *rest);
    }
    return at < COMMAND_BYTES ? f->command : NULL;
}

/* Of a peer's model: the peer once more, by the settings that it left beside it. */
static const char *peer_command(struct filling *f, const char *path)
{
    const char *slash = strrchr(path, '/');
    char config[4096];

    snprintf(config, sizeof config, "%.*sconfig.ini", slash != NULL ? (int)(slash + 1 - path) : 0,
             path);
    if (!file_is_regular(config)) return NULL;
    size_t at = shell_add(f->command, COMMAND_BYTES, 0, "grapevine");
    at = shell_add(f->command, COMMAND_BYTES, at, "peer");
    at = shell_add(f->command, COMMAND_BYTES, at, "--config");
    at = shell_add(f->command, COMMAND_BYTES, at, config);
    at = shell_add(f->command, COMMAND_BYTES, at, "--out");
    at = shell_add(f->command, COMMAND_BYTES, at, "again");
    return at < COMMAND_BYTES ? f->command : NULL;
}

static enum rc add_teachers(struct filling *f, struct fault *why)
{
    const struct comparison *c = &f->out->teachers;
    enum rc rc = RC_OK;

    for (size_t i = 0; rc == RC_OK && i < c->count; i++) {
        char name[NAME_BYTES];
        if (i < MEASURED || c->parameters[i] != f->one.parameters) {
            rc = judge_costs(f->judge, c->paths[i], &f->one, why);
        }
        if (rc != RC_OK) break;
        f->one.score = c->models[i];
        f->all.parameters += f->one.parameters;
        f->all.bytes += f->one.bytes;
        f->all.flops += f->one.flops;
        f->all.latency_us += f->one.latency_us;
        snprintf(name, sizeof name, "teacher %zu", i);
        if (f->options->teacher_names != NULL) {
            snprintf(name, sizeof name, "%s", f->options->teacher_names[i]);
        }
        rc = add(f, name, f->options->keeps_nothing ? NULL : c->paths[i],
                 peer_command(f, c->paths[i]), &f->one, why);
    }
    return rc;
}

/* Averages cost what a member does. */
static enum rc add_averages(struct filling *f, struct fault *why)
{
    static const char *const uniform[] = {"--out", "average.safetensors", NULL};
    static const char *const greedy[] = {"--soup", "greedy", "--out", "soup.safetensors", NULL};
    const struct comparison *c = &f->out->teachers;
    struct judged mean = f->one;
    char name[NAME_BYTES];
    size_t members = 0;
    enum rc rc = RC_OK;

    if (c->count < 2 || !c->has_average) return RC_OK;
    mean.score = c->average;
    rc = add(f, "average of their parameters", NULL, command_of(f, "average", NULL, uniform), &mean,
             why);
    if (rc != RC_OK || !c->has_soup) return rc;
    for (size_t i = 0; i < c->count; i++) {
        members += c->in_soup[i];
    }
    mean.score = c->soup;
    snprintf(name, sizeof name, "greedy soup of %zu", members);
    return add(f, name, NULL, command_of(f, "average", NULL, greedy), &mean, why);
}

static enum rc add_ensembles(struct filling *f, struct fault *why)
{
    static const char *const names[VOTE_COUNT] = {"ensemble", "ensemble, mean of logits",
                                                  "ensemble, vote"};
    const struct distill_options *o = f->options;
    const char *const weights[] = {"--weights",
                                   o->weighs_scores       ? "score"
                                   : o->weighs_confidence ? "confidence"
                                                          : "equal",
                                   NULL};
    const struct comparison *c = &f->out->teachers;
    enum rc rc = RC_OK;

    for (int vote = 0; rc == RC_OK && vote < VOTE_COUNT; vote++) {
        if (c->votes[vote].count == 0 || (c->count == 1 && vote != (int)f->out->vote)) continue;
        f->all.score = c->votes[vote];
        rc = add(f, names[vote], NULL, command_of(f, "eval", NULL, weights), &f->all, why);
    }
    return rc;
}

/* NAME=FILE or FILE. */
static enum rc add_other(struct filling *f, const char *text, struct fault *why)
{
    const char *equals = strchr(text, '='), *file = equals != NULL ? equals + 1 : text;
    struct judged judged;
    char name[NAME_BYTES];

    snprintf(name, sizeof name, "%.*s", equals != NULL ? (int)(equals - text) : (int)strlen(text),
             text);
    const enum rc rc = judge_file(f->judge, file, &judged, why);
    return rc == RC_OK ? add(f, name, file, peer_command(f, file), &judged, why) : rc;
}

enum rc distill_make_lineup(struct judge *judge, const struct distill_options *options,
                            struct distill_result *out, struct fault *why)
{
    struct filling f = {.judge = judge, .options = options, .out = out};
    enum rc rc = RC_OK;

    f.command = mem_alloc(COMMAND_BYTES);
    if (f.command == NULL) return fault_set(why, RC_NOMEM, "cannot distil: out of memory");
    rc = add_teachers(&f, why);
    if (rc == RC_OK) rc = add_averages(&f, why);
    if (rc == RC_OK) rc = add_ensembles(&f, why);
    if (rc == RC_OK) {
        const char *name = options->student_name != NULL ? options->student_name : "student";
        rc = add(&f, name, options->out_path, options->command, &out->student_judged, why);
    }
    if (rc == RC_OK && out->has_baseline) {
        rc = add(&f, "the same student on labels alone", NULL, options->command,
                 &out->labels_only_judged, why);
    }
    for (size_t i = 0; rc == RC_OK && i < options->others_count; i++) {
        rc = add_other(&f, options->others[i], why);
    }
    mem_free(f.command);
    return rc;
}
