/*
 * How the input is normalised, where each peer has data of its own (SECTION_INPUT): by numbers that
 * are part of the model, so that all who average have the same ones, to the bit.
 *
 * A peer begins with those of its own data, and is known by a lineage that covers them. Where
 * --start-with asks for several, members tell each other means, deviations and how many samples
 * they are of (PROGRESS) while they wait for one another. Each merges what it was told
 * (averaging/core/measures.h) and takes that lineage; when all hold the same they begin, and from
 * the first step on it stays. Nobody collects or decides: who was told the same computes the same.
 * Where they do not come to the same within INPUT_AGREE_NS, as one tells each something else, the
 * model that most hold is taken (choice.c), if its normalisation could be a merge of what this peer
 * was told, and its initial parameters are not those of one member alone. Who comes later takes the
 * swarm's, and so does who restarts without a checkpoint. The lineage is the BLAKE2b of the
 * section, which holds that of the initial parameters: a donor cannot give another normalisation
 * with it. Loop thread, but where it says so.
 */
#include "peer/node/models/internal.h"

#include "averaging/core/measures.h"
#include "peer/times.h"

#include <math.h>
#include <stdio.h>

/* A channel whose mean is so many deviations away from the swarm's is told of. */
#define FAR_APART 3.0F

static size_t section_bytes(const struct models_input *input)
{
    return (2 * input->channels + INPUT_TAIL) * sizeof(float);
}

enum rc models_input_create(struct node *node)
{
    struct models_input *input = &node->models->input;
    size_t values = node->schema->values[SECTION_INPUT];

    if (values == 0 || node->options.measured == NULL) return RC_OK;
    if (models_are_population(node)) return RC_OK; /* it is copied with the model */
    input->channels = (values - INPUT_TAIL) / 2;
    input->is_over = node->options.resume != NULL;
    input->initial = mem_aligned(section_bytes(input));
    input->wanted = mem_aligned(section_bytes(input));
    input->assigned = mem_aligned(section_bytes(input));
    return input->initial == NULL || input->wanted == NULL || input->assigned == NULL ? RC_NOMEM
                                                                                      : RC_OK;
}

void models_input_resume(struct node *node)
{
    struct models_input *input = &node->models->input;

    if (input->channels == 0 || node->options.resume->has_input) return;
    input->parameters = node->lineage; /* of an earlier version: from here on known by more */
    input->has_parameters = true;
    node->has_lineage = false;
}

void models_input_destroy(struct node *node)
{
    struct models_input *input = &node->models->input;

    for (uint32_t i = 0; i < input->told_count; i++) {
        mem_free(input->told[i].values);
    }
    mem_free(input->initial);
    mem_free(input->wanted);
    mem_free(input->assigned);
}

bool models_input_is_open(const struct node *node)
{
    const struct models_input *input = &node->models->input;

    return input->channels > 0 && !input->is_over && node->own_steps == 0 &&
           node->model_samples == 0;
}

/* ---- what members tell ---- */

static bool is_told(const struct node *node)
{
    return models_input_is_open(node) && node->options.start_with > 1 &&
           node->models->input.channels <= MEASURED_BYTES_MAX / (2 * sizeof(float));
}

void models_input_fill(const struct node *node, struct message_progress *progress)
{
    const size_t values = 2 * node->models->input.channels;

    if (!is_told(node)) return;
    progress->measured_samples = node->options.measured_samples;
    progress->measured = (const uint8_t *)node->options.measured; /* little-endian, as we are */
    progress->measured_bytes = (uint32_t)(values * sizeof(float));
}

/* All that told, and this peer. */
static size_t members_of(const struct node *node, struct measures members[LINKS_MAX + 1])
{
    const struct models_input *input = &node->models->input;
    size_t count = 0;

    members[count++] = (struct measures){node->options.measured_samples, node->options.measured};
    for (uint32_t i = 0; i < input->told_count; i++) {
        members[count++] = (struct measures){input->told[i].samples, input->told[i].values};
    }
    return count;
}

/* Of one member alone it is what that began with. */
static void merge(struct node *node)
{
    struct models_input *input = &node->models->input;
    struct measures members[LINKS_MAX + 1];
    float *tail = input->wanted + 2 * input->channels;
    double samples = 0;
    size_t count = members_of(node, members);

    memcpy(input->wanted, input->initial, section_bytes(input));
    for (size_t i = 0; i < count; i++) {
        samples += (double)members[i].samples;
    }
    tail[INPUT_MEMBERS] = (float)count;
    tail[INPUT_SAMPLES] = (float)samples;
    if (count > 1 && measures_merge(members, count, input->channels, input->wanted,
                                    input->wanted + input->channels) != RC_OK) {
        return;
    }
    input->is_due = memcmp(input->wanted, input->assigned, section_bytes(input)) != 0;
}

static uint32_t find(const struct models_input *input, struct peer_id id)
{
    uint32_t i = 0;

    while (i < input->told_count && !peer_id_is_equal(input->told[i].id, id)) {
        i++;
    }
    return i;
}

static void remove_told(struct models_input *input, uint32_t i)
{
    mem_free(input->told[i].values);
    input->told[i] = input->told[--input->told_count];
}

void models_input_forget(struct node *node, struct peer_id peer)
{
    struct models_input *input = &node->models->input;
    uint32_t i = find(input, peer);

    if (i == input->told_count) return;
    remove_told(input, i);
    input->is_changed = true;
}

void models_input_hear(struct node *node, struct peer_id from,
                       const struct message_progress *progress)
{
    struct models_input *input = &node->models->input;
    const size_t bytes = 2 * input->channels * sizeof(float);
    uint32_t i = find(input, from);
    float *values;

    if (!is_told(node) || progress->measured_bytes == 0) return;
    if (i < input->told_count) return; /* its data do not change while it runs */
    values = progress->measured_bytes == bytes ? mem_aligned(bytes) : NULL;
    if (values != NULL) memcpy(values, progress->measured, bytes);
    if (values == NULL ||
        !measures_are_sound(&(struct measures){progress->measured_samples, values},
                            input->channels)) {
        mem_free(values);
        models_input_forget(node, from);
        door_score(node, from, SCORE_BROKE);
        return;
    }
    CHECK(input->told_count < LINKS_MAX);
    input->told[input->told_count++] =
        (struct models_measured){from, progress->measured_samples, values};
    input->is_changed = true;
}

/* ---- the lineage ---- */

bool models_input_is_due(const struct node *node)
{
    return node->models->input.is_due && is_told(node);
}

void models_input_prepare(struct node *node)
{
    struct models_input *input = &node->models->input;

    if (node->has_lineage) memcpy(input->assigned, input->wanted, section_bytes(input));
    input->is_due = false;
}

/* Two bytes a value: exact, and finite. */
static void write_digest(struct digest digest, float *words)
{
    for (size_t i = 0; i < sizeof digest.bytes / 2; i++) {
        words[i] = (float)(digest.bytes[2 * i] | digest.bytes[2 * i + 1] << 8);
    }
}

_Static_assert(INPUT_TAIL - INPUT_WORDS == DIGEST_BYTES / 2, "a digest fits");

enum rc models_input_run(struct node *node, struct digest *lineage)
{
    struct models_input *input = &node->models->input;
    enum rc rc = RC_OK;

    if (input->channels == 0) return RC_OK;
    input->parameters = *lineage;
    input->has_parameters = true;
    if (!input->has_initial) {
        input->has_initial = true;
        rc = lane_export(node, SECTION_INPUT, input->assigned);
        write_digest(*lineage, input->assigned + 2 * input->channels + INPUT_WORDS);
        memcpy(input->initial, input->assigned, section_bytes(input));
    }
    if (rc == RC_OK) rc = lane_assign(node, SECTION_INPUT, input->assigned);
    if (rc == RC_OK) *lineage = hash_of(input->assigned, section_bytes(input));
    return rc;
}

/* A model with the initial parameters of one member alone: among three or more that began alike it
 * is a liar's. Where they did not (unlike seeds), one of them is taken all the same, later. */
static bool is_of_one(const struct node *node, const float *section)
{
    const struct models_input *input = &node->models->input;
    float words[INPUT_TAIL - INPUT_WORDS];

    write_digest(input->parameters, words);
    return input->has_parameters && node_now(node) < input->unlike_ns + START_LOADS_NS &&
           models_holders(node, node->models->wanted.lineage) < 2 &&
           memcmp(section + 2 * input->channels + INPUT_WORDS, words, sizeof words) != 0;
}

bool models_input_doubts(const struct node *node)
{
    return is_told(node) && node->models->input.told_count >= 2;
}

void models_input_judge(struct node *node)
{
    const struct models_input *input = &node->models->input;
    struct models_taking *taking = &node->models->taking;
    struct digest lineage = joiner_manifest(node->models->joiner)->lineage;
    struct measures members[LINKS_MAX + 1];
    size_t count = 0;
    const float *section = joiner_section(node->models->joiner, SECTION_INPUT, &count);

    if (input->channels == 0) return;
    taking->is_forged = section == NULL || count * sizeof(float) != section_bytes(input) ||
                        !digest_is_equal(hash_of(section, section_bytes(input)), lineage) ||
                        !input_is_sound(section, input->channels);
    if (taking->is_forged || !models_input_doubts(node)) return;
    count = members_of(node, members);
    taking->is_forged =
        is_of_one(node, section) || measures_allow(members, count, input->channels, section,
                                                   section + input->channels) != RC_OK;
}

/* ---- when it is agreed ---- */

bool models_input_is_agreeing(const struct node *node)
{
    const struct models_input *input = &node->models->input;

    return is_told(node) &&
           (input->since_ns == 0 || node_now(node) < input->since_ns + INPUT_AGREE_NS);
}

bool models_input_waits(const struct node *node)
{
    const struct models_input *input = &node->models->input;

    if (!models_input_is_open(node)) return false;
    if (models_input_is_due(node)) return true;
    /* Enough hold ours to begin with; the others will take it. */
    if (models_holders(node, node->lineage) + 1 >= node->options.start_with) return false;
    return models_unlike(node) > 0 &&
           (input->since_ns == 0 || node_now(node) < input->since_ns + 2 * INPUT_AGREE_NS);
}

void models_input_tick(struct node *node, uint64_t now_ns)
{
    struct models_input *input = &node->models->input;

    if (!models_input_is_open(node)) return;
    if (input->is_changed && node->has_lineage && models_input_is_agreeing(node)) {
        input->is_changed = false;
        merge(node);
    }
    if (models_unlike(node) == 0) input->unlike_ns = input->since_ns = 0;
    if (input->unlike_ns == 0 && models_unlike(node) > 0) input->unlike_ns = now_ns;
    /* Not before all have told, or as many as are enough to begin with; but not for ever. */
    if (input->since_ns == 0 && input->unlike_ns != 0 &&
        (input->told_count + 1 >= node->options.start_with || input->told_count >= START_LINKS ||
         now_ns >= input->unlike_ns + START_LOADS_NS)) {
        input->since_ns = now_ns;
    }
}

/* ---- for people ---- */

/* One line of the channel that is farthest off: this peer's samples may well be in another unit. */
static void tell_far(const struct node *node, const float *section)
{
    const size_t channels = node->models->input.channels;
    const char *const *names = node->options.measured_names;
    float farthest = FAR_APART;
    size_t far = channels;
    char number[32];

    for (size_t c = 0; c < channels; c++) {
        float apart = fabsf(node->options.measured[c] - section[c]) * section[channels + c];

        if (apart > farthest) {
            farthest = apart;
            far = c;
        }
    }
    if (far == channels) return;
    snprintf(number, sizeof number, "%zu", far + 1);
    log_warn(
        node->options.log,
        "this peer's data look unlike the swarm's: the mean of %s is %.4g here and %.4g there, "
        "%.1f deviations apart; is it in another unit?",
        names != NULL ? names[far] : number, (double)node->options.measured[far],
        (double)section[far], (double)farthest);
}

static void tell(const struct node *node, const float *section)
{
    const float *tail = section + 2 * node->models->input.channels;

    log_info(node->options.log, "inputs are normalised by the data of %.0f member%s, %.0f samples",
             (double)tail[INPUT_MEMBERS], tail[INPUT_MEMBERS] > 1.0F ? "s" : "",
             (double)tail[INPUT_SAMPLES]);
    tell_far(node, section);
}

void models_input_settle(struct node *node)
{
    struct models_input *input = &node->models->input;

    if (!models_input_is_open(node)) return;
    if (node->has_lineage && input->told_count > 0) tell(node, input->assigned);
    input->is_over = true;
}

void models_input_taken(struct node *node)
{
    struct models_input *input = &node->models->input;
    size_t count = 0;
    const float *section = joiner_section(node->models->joiner, SECTION_INPUT, &count);

    if (input->channels == 0 || section == NULL) return;
    tell(node, section);
    input->is_over = true;
}
