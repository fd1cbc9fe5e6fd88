/*
 * Does the donor lie? While a download runs, other members are asked for sketches of what they
 * hold; before anything is loaded, the sketch of what was downloaded is compared with theirs. And
 * how a download is told about to people. Loop thread, but for models_check_run().
 */
#include "peer/node/models/internal.h"

#include "base/floats.h"
#include "peer/download/buckets.h"
#include "base/norm.h"
#include "peer/times.h"

#include <math.h>

enum { MEGABYTE = 1000000, MOMENTUM_MOST = 10, MOMENTS_MOST = 8, WITNESSES = 2 };
enum { STEPS_SLACK = 500, SAMPLES_SLACK = 1 << 16, ROUNDS_SLACK = 8 };

/* ---- rounds, as others tell of them ---- */

bool models_holds(const struct neighbour *neighbour, struct digest lineage)
{
    return neighbour->has_progress && neighbour->progress.is_serving &&
           digest_is_equal(neighbour->progress.lineage, lineage);
}

/* ...and is what is wanted: of one lineage there may be another that has just begun. */
bool models_holds_wanted(const struct neighbour *neighbour, const struct models_wanted *wanted)
{
    return models_holds(neighbour, wanted->lineage) &&
           neighbour->progress.samples >= wanted->samples_least &&
           neighbour->progress.step >= wanted->step_least;
}

bool models_gives_wanted(const struct node *node, const struct neighbour *neighbour,
                         const struct models_wanted *wanted)
{
    if (!models_holds_wanted(neighbour, wanted)) return false;
    for (uint32_t i = 0; i < node->neighbours_count && neighbour->is_keeper; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (!other->is_keeper && models_holds_wanted(other, wanted)) return false;
    }
    return true;
}

/* Who can say something of a download that `donor` gives: what keepers hold is of another time. */
static bool is_witness(const struct node *node, const struct neighbour *other, struct peer_id donor)
{
    return !other->is_keeper && models_holds_wanted(other, &node->models->wanted) &&
           !peer_id_is_equal(other->id, donor);
}

void models_hear(struct node *node, struct neighbour *neighbour,
                 const struct message_progress *progress)
{
    uint64_t now_ns = node_now(node), gap_ns = now_ns - neighbour->progress_ns;

    if (neighbour->has_progress && progress->round >= neighbour->progress.round &&
        gap_ns > NODE_PROGRESS_NS / 4) {
        neighbour->rounds_per_s =
            (double)(progress->round - neighbour->progress.round) * 1e9 / (double)gap_ns;
    }
    if (neighbour->has_progress && neighbour->progress.samples < node->model_samples / 2 &&
        progress->samples >= node->model_samples / 2) { /* it took another model */
        rounds_far_is_over(node, neighbour);
    }
    if (!neighbour->has_progress) neighbour->first_step = progress->step;
    models_input_hear(node, neighbour->id, progress);
    neighbour->progress = *progress;
    neighbour->progress.measured = NULL; /* it was borrowed */
    neighbour->has_progress = true;
    neighbour->progress_ns = now_ns;
    models_said_changed(node);
    if (node->state == NODE_LOADING &&
        models_gives_wanted(node, neighbour, &node->models->wanted)) {
        joiner_offer(node->models->joiner, neighbour->id, now_ns, &node->outbox);
    }
}

/* How many say one. */
static uint32_t rounds_said(const struct node *node, struct digest lineage,
                            uint64_t rounds[LINKS_MAX])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (other->is_keeper || !models_holds(other, lineage)) continue;
        rounds[count++] = other->progress.round;
    }
    return count;
}

/* The median, so that one who boasts does not make every donor wait for what will not come. */
uint64_t models_round_now(const struct node *node, struct digest lineage)
{
    uint64_t rounds[LINKS_MAX];
    uint32_t count = rounds_said(node, lineage, rounds);

    if (count == 0) return 0;
    (void)models_median(rounds, count); /* sorts them */
    return rounds[count / 2];
}

/* Of two the lower. With an allowance on top, those who follow would draw each other on. */
uint64_t models_round_believed(const struct node *node)
{
    uint64_t rounds[LINKS_MAX];
    uint32_t count = rounds_said(node, node->lineage, rounds);

    return count == 0 ? 0 : models_median(rounds, count);
}

/* The round before which no honest snapshot of now was taken, by what others than the donor said.
 * The median would be better with many liars; the least allows the most. */
static uint64_t round_floor(const struct node *node, struct peer_id donor)
{
    double least = -1;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];
        double back = other->rounds_per_s * (double)CHECK_SNAPSHOT_NS / 1e9 + 2;
        double round = (double)other->progress.round - back;

        if (!is_witness(node, other, donor)) continue;
        if (least < 0 || round < least) least = round;
    }
    return least > 0 ? (uint64_t)least : 0;
}

/* ---- asking ---- */

static uint32_t count_witnesses(const struct node *node)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        count += is_witness(node, &node->neighbours[i], node->models->check.donor);
    }
    return count;
}

static bool is_asked(const struct models_check *check, struct peer_id id)
{
    for (uint32_t i = 0; i < check->asked; i++) {
        if (peer_id_is_equal(check->asked_of[i], id)) return true;
    }
    return false;
}

/* As many as are to answer, and others for those who take long. */
static void ask(struct node *node)
{
    struct models_check *check = &node->models->check;
    struct message message = {.type = MESSAGE_SKETCH_REQ};
    uint32_t first = 0;

    message.as.sketch_req.seed = check->seed;
    if (node->neighbours_count > 0) first = (uint32_t)rng_below(&node->rng, node->neighbours_count);
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[(first + i) % node->neighbours_count];

        if (check->asked == MODELS_ASKED_MAX) return;
        if (check->asked - check->overdue >= SKETCH_ANSWERS_MAX) return;
        if (!is_witness(node, other, check->donor) || is_asked(check, other->id)) continue;
        check->asked_of[check->asked++] = other->id;
        check->asked_ns = node_now(node);
        (void)links_send(node->links, other->id, &message); /* no answer is one fewer */
    }
}

static void ask_on(struct node *node, uint64_t now_ns)
{
    struct models_check *check = &node->models->check;
    struct peer_id donor;
    uint64_t round;
    uint32_t lease;

    if (!joiner_listing(node->models->joiner, &donor, &lease, &round)) return;
    if (lease != check->lease || !peer_id_is_equal(donor, check->donor)) { /* another model */
        bool is_again = round == check->round && peer_id_is_equal(donor, check->donor);
        uint64_t floor = is_again ? check->floor : round_floor(node, donor); /* the link was lost */

        *check = (struct models_check){.donor = donor,
                                       .lease = lease,
                                       .seed = rng_u64(&node->rng),
                                       .round = round,
                                       .floor = floor};
    }
    if (now_ns >= check->asked_ns + CHECK_ANSWER_NS) {
        check->overdue = check->asked - check->answered;
    }
    ask(node);
}

static void read_sketch(const uint8_t *bytes, struct sketch *sketch)
{
    for (size_t i = 0; i < SKETCH_VALUES; i++) {
        sketch->values[i] = load_le_float(bytes + 4 * i);
    }
}

void models_on_sketch(struct node *node, struct peer_id from, const struct message_sketch *message)
{
    struct models_check *check = &node->models->check;
    struct sketch_answer *answer;

    if (node->state != NODE_LOADING || message->seed != check->seed) return;
    if (check->answered == SKETCH_ANSWERS_MAX) return;
    for (uint32_t i = check->answered; i < check->asked; i++) {
        if (!peer_id_is_equal(check->asked_of[i], from)) continue;
        answer = &check->answers[check->answered];
        answer->round = message->round;
        answer->moved = (double)message->moved;
        answer->moments = (double)message->moments;
        read_sketch(message->values, &answer->sketch);
        read_sketch(message->values + SKETCH_BYTES / 2, &answer->buffers);
        check->asked_of[i] = check->asked_of[check->answered]; /* once each */
        check->asked_of[check->answered++] = from;
        if (check->overdue > check->asked - check->answered) check->overdue--;
        return;
    }
}

bool models_check_is_pending(struct node *node)
{
    struct models_check *check = &node->models->check;
    uint64_t now_ns = node_now(node);
    uint32_t witnesses = count_witnesses(node);
    struct membership_counts counts;

    if (check->complete_ns == 0) check->complete_ns = now_ns;
    if (check->answered == SKETCH_ANSWERS_MAX) return false;
    if (witnesses < WITNESSES) { /* perhaps others are about to be linked */
        membership_counts(node->membership, &counts);
        return counts.believed > models_heard(node) && now_ns < check->complete_ns + CHECK_HEAR_NS;
    }
    if (check->answered >= WITNESSES) { /* one more is better, but nothing to wait long for */
        return check->answered < witnesses && now_ns < check->asked_ns + CHECK_ANSWER_NS;
    }
    return now_ns < check->complete_ns + CHECK_PATIENT_NS;
}

/* ---- what a manifest says, and what others do ---- */

/* Near the median of what all say, the donor too, or that: so of three one may lie, and of two the
 * lower counts. `said` has room for one more. */
static uint64_t within(uint64_t value, uint64_t *said, size_t count, uint64_t slack)
{
    uint64_t middle;

    said[count] = value;
    middle = models_median(said, count + 1);
    slack += middle / 4;
    if (value <= middle + slack && value + slack >= middle) return value;
    return middle;
}

/* Steps drive schedules, samples are what we tell others, and of rounds of a group nobody may be
 * ahead. The donor is one of many who say them. */
static void believe_counts(const struct node *node, struct models_taking *taking)
{
    const struct message_state_manifest *manifest = joiner_manifest(node->models->joiner);
    uint64_t steps[LINKS_MAX + 1], samples[LINKS_MAX + 1], rounds[LINKS_MAX];
    uint64_t slack = ROUNDS_SLACK;
    size_t count = 0;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (!is_witness(node, other, taking->check.donor)) continue;
        steps[count] = other->progress.step;
        samples[count] = other->progress.samples;
        rounds[count++] = other->progress.round;
        if (other->rounds_per_s < 1e6) slack += (uint64_t)(2 * other->rounds_per_s);
    }
    taking->step = within(manifest->step, steps, count, STEPS_SLACK);
    taking->samples = within(manifest->samples, samples, count, SAMPLES_SLACK);
    taking->round = manifest->round;
    if (count > 0 &&
        manifest->round > models_median(rounds, count) + slack / count + ROUNDS_SLACK) {
        taking->round = models_median(rounds, count);
    }
}

void models_check_begin(struct node *node)
{
    struct models_taking *taking = &node->models->taking;
    bool is_other = !digest_is_equal(node->models->wanted.lineage, node->lineage);

    *taking = (struct models_taking){.check = node->models->check, .others = count_witnesses(node)};
    believe_counts(node, taking);
    taking->is_mixed = joiner_stats(node->models->joiner).is_mixed;
    if (taking->is_mixed || (node->models->gave_way && is_other)) {
        taking->agreed_least = WITNESSES;
    } else if (node->models->doubts == 0) { /* new here: as many as there are */
        taking->agreed_least = taking->others < WITNESSES ? 0 : WITNESSES;
    }
    taking->keeps = node->options.keeps_files && node->model_samples > 0 &&
                    !(node->options.is_keeper && !is_other) &&
                    !node->options.strategy->mixes_answers && !lane_has_before(node);
}

/* ---- judging ---- */

/* Others are not asked for sketches of it. It moves the model as far as the last rounds did, or
 * would have done without the gradients against it: what is much more is not the swarm's. */
static enum rc check_momentum(struct node *node)
{
    const double rate = (double)node->options.strategy->rule_settings.rate;
    struct sketch_opinion *opinion = &node->models->taking.opinion;
    size_t count = 0;
    const float *values = joiner_section(node->models->joiner, SECTION_RULE_SECOND, &count);
    double far = values == NULL ? 0 : rate * sqrt(norm_squared(values, count));

    if (values == NULL || far <= MOMENTUM_MOST * opinion->allowed) return RC_OK;
    opinion->verdict = SKETCH_REFUSED;
    opinion->distance = far;
    opinion->allowed *= MOMENTUM_MOST;
    return RC_AUTH;
}

static enum rc check_buffers(struct node *node)
{
    const struct models_check *check = &node->models->taking.check;
    struct sketch_opinion opinion;
    struct sketch own;
    size_t count = 0;
    const float *values = joiner_section(node->models->joiner, SECTION_BUFFERS, &count);

    if (values == NULL) return RC_OK;
    sketch_make(values, node->schema->shared_buffers, check->seed, &own);
    opinion = sketch_judge_buffers(&own, check->answers, check->answered);
    if (opinion.verdict != SKETCH_REFUSED) return RC_OK;
    node->models->taking.opinion = opinion;
    return RC_AUTH;
}

/* Moments are each member's own, so only their size can be compared. Without them training goes on
 * all the same. */
static void check_moments(struct node *node)
{
    const struct models_check *check = &node->models->taking.check;
    size_t count = 0;
    const float *values = joiner_section(node->models->joiner, SECTION_MOMENTS, &count);
    double most = MOMENTS_MOST * sketch_moments(check->answers, check->answered);

    if (values == NULL) return;
    node->models->taking.leaves_moments = sqrt(norm_squared(values, count)) > most;
}

/* Too few answers: is it taken all the same? With nobody to ask, and by who is new, it is. */
static enum rc judge_unchecked(struct node *node)
{
    node->models->taking.opinion = (struct sketch_opinion){.verdict = SKETCH_UNCHECKED};
    return node->models->taking.agreed_least > 0 ? RC_BUSY : RC_OK;
}

/* One of two agrees, and so does the donor: two of three. */
static bool is_split(const struct models_taking *taking)
{
    return taking->check.answered == 2 && taking->opinion.agreed == 1;
}

enum rc models_check_run(struct node *node)
{
    struct models_taking *taking = &node->models->taking;
    const struct models_check *check = &taking->check;
    const struct message_state_manifest *manifest = joiner_manifest(node->models->joiner);
    uint64_t round = manifest->round > check->floor ? manifest->round : check->floor;
    struct sketch own;
    size_t count = 0;
    const float *values = joiner_section(node->models->joiner, SECTION_PARAMETERS, &count);

    CHECK(values != NULL);
    if (check->answered < WITNESSES) return judge_unchecked(node);
    for (uint32_t section = SECTION_PARAMETERS; values != NULL; section = SECTION_RULE) {
        sketch_make(values, node->schema->shared_parameters, check->seed, &own);
        taking->opinion = sketch_judge(&own, round, check->answers, check->answered);
        if (taking->opinion.verdict == SKETCH_REFUSED) {
            if (!is_split(taking)) return RC_AUTH;
            if (taking->agreed_least > 0) return RC_BUSY;
            taking->opinion.verdict = SKETCH_FITS;
        }
        if (section == SECTION_RULE) break;
        values = joiner_section(node->models->joiner, SECTION_RULE,
                                &count); /* an anchor is as near them */
    }
    check_moments(node);
    if (check_buffers(node) != RC_OK) return RC_AUTH;
    return check_momentum(node);
}

static void tell_counts(const struct node *node)
{
    const struct message_state_manifest *manifest = joiner_manifest(node->models->joiner);
    const struct models_taking *taking = &node->models->taking;

    if (taking->step != manifest->step || taking->samples != manifest->samples) {
        log_info(node->options.log,
                 "the donor counts %llu steps and %llu samples, the other members %llu and %llu: "
                 "this peer counts on from the latter",
                 (unsigned long long)manifest->step, (unsigned long long)manifest->samples,
                 (unsigned long long)taking->step, (unsigned long long)taking->samples);
    }
    if (taking->leaves_moments) {
        log_warn(node->options.log,
                 "the downloaded optimizer state is far larger than that of other members, so it "
                 "is not used: the optimizer keeps the state it has here");
    }
}

static void tell_unchecked(const struct node *node)
{
    const struct models_taking *taking = &node->models->taking;

    if (taking->agreed_least > 0) {
        log_warn(node->options.log,
                 "the downloaded model is not used: two members besides the donor must confirm "
                 "it, and of %u that hold it only %u answered; this peer tries again later",
                 taking->others, taking->check.answered);
    } else if (taking->others < WITNESSES) {
        log_line(node->options.log, node->options.is_keeper ? LOG_DEBUG : LOG_INFO,
                 "the downloaded model is used unchecked: a check takes two members besides the "
                 "donor, and this swarm has fewer");
    } else {
        log_warn(node->options.log,
                 "the downloaded model is used unchecked: a check takes two members besides the "
                 "donor, and of %u that hold it only %u answered",
                 taking->others, taking->check.answered);
    }
}

void models_check_told(struct node *node)
{
    const struct models_taking *taking = &node->models->taking;
    const struct sketch_opinion *opinion = &taking->opinion;
    char id[PEER_ID_TEXT];

    peer_id_format(taking->check.donor, id);
    switch (opinion->verdict) {
    case SKETCH_UNCHECKED:
        tell_unchecked(node);
        break;
    case SKETCH_FITS:
        log_line(node->options.log, node->options.is_keeper ? LOG_DEBUG : LOG_INFO,
                 "%u other members confirm the downloaded model", opinion->agreed);
        break;
    case SKETCH_REFUSED:
        log_warn(
            node->options.log,
            "the model from peer %.8s is not the swarm's and is not used: it is %.3g away from "
            "what %u other members hold, where at most %.3g is plausible",
            id, opinion->distance, taking->check.answered, opinion->allowed);
        break;
    }
    tell_counts(node);
}

/* ---- telling ---- */

static void tell(struct node *node, uint64_t now_ns)
{
    struct joiner_stats stats = joiner_stats(node->models->joiner);
    double rate, left_s;

    if (stats.total_bytes == 0) return;
    rate = (double)(stats.received_bytes - node->models->told_bytes) * 1e9 /
           (double)(now_ns - node->models->told_ns + 1);
    left_s = rate > 0 ? (double)(stats.total_bytes - stats.held_bytes) / rate : 0;
    node->models->told_bytes = stats.received_bytes;
    if (rate > 0) {
        log_info(node->options.log,
                 "downloading the model: %.0f %% of %.1f MB, %.2f MB/s from %u donor%s, about "
                 "%.0f s left",
                 100 * stats.progress, (double)stats.total_bytes / MEGABYTE, rate / MEGABYTE,
                 stats.sources, stats.sources == 1 ? "" : "s", left_s);
    } else {
        log_warn(node->options.log,
                 "downloading the model: %.0f %% of %.1f MB, nothing came in the last %.0f s",
                 100 * stats.progress, (double)stats.total_bytes / MEGABYTE,
                 (double)(now_ns - node->models->told_ns) / 1e9);
    }
}

void models_check_tick(struct node *node, uint64_t now_ns)
{
    if (node->state != NODE_LOADING) return;
    ask_on(node, now_ns);
    if (now_ns < node->models->told_ns + CHECK_LINES_NS) return;
    tell(node, now_ns);
    node->models->told_ns = now_ns;
}

uint64_t models_check_next_ns(const struct node *node)
{
    const struct models_check *check = &node->models->check;
    const uint64_t ends[] = {node->models->told_ns + CHECK_LINES_NS,
                             check->asked_ns + CHECK_ANSWER_NS, check->complete_ns + CHECK_HEAR_NS,
                             check->complete_ns + CHECK_PATIENT_NS};
    uint64_t next_ns = UINT64_MAX;

    if (node->state != NODE_LOADING) return UINT64_MAX;
    for (size_t i = 0; i < ARRAY_COUNT(ends); i++) {
        if (ends[i] > node_now(node) && ends[i] < next_ns) next_ns = ends[i];
    }
    return next_ns;
}
