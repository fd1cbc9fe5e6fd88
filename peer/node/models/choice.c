/*
 * Which model wins. A model has a lineage (BLAKE2b of its initial plane), and members say how many
 * samples and steps are behind theirs. Unrelated models are never averaged, so where two meet one
 * gives way. What a member says of its model is words, so words alone move nobody:
 *
 *   in training   a peer takes another lineage only where more neighbours hold it than its own,
 *                 itself counted, on as many hosts, for some time; of equal halves that with the
 *                 larger lineage gives way, which both halves compute alike. Three holders must be
 *                 there: one to give it and two to confirm it (check.c).
 *   new           it has nothing to lose, and takes the trained model that most hold.
 *   restarted     it goes on from its checkpoint, unless more hold another lineage, or the median
 *                 of those with its own has come much farther.
 *   just begun    the same, before its first round: it would mix an old model in, or none.
 *   keeper        it does not train, and takes what those who do have come to, time and again.
 *
 * Identities cost who holds the swarm's key nothing; hosts do. Loop thread only.
 */
#include "peer/node/models/internal.h"

#include "peer/times.h"

enum { HOLDERS_LEAST = 3, PLACE_COUNTS = 4 };

struct holders {
    uint32_t all, trained, met, places;
    uint32_t fair; /* of `all`, but of those on one host PLACE_COUNTS at most */
};

struct place {
    uint64_t place;
    uint32_t count;
};

static bool is_same(const struct node *node, const struct neighbour *other)
{
    return digest_is_equal(other->progress.lineage, node->lineage);
}

static bool is_smaller(struct digest a, struct digest b)
{
    return memcmp(a.bytes, b.bytes, sizeof a.bytes) < 0;
}

/* It says that it has a model to give, and we have not just failed to get it. */
static bool is_offering(const struct node *node, const struct neighbour *other)
{
    return other->has_progress && other->progress.is_serving && node_now(node) >= other->avoid_ns;
}

static bool is_met(const struct node *node, const struct neighbour *other)
{
    uint64_t now_ns = node_now(node);

    return now_ns >= other->linked_ns + CHOICE_MET_NS &&
           trust_may_mix(node->trust, other->id, now_ns);
}

/* One more on this host; which of them it is there. */
static uint32_t note_place(struct holders *holders, struct place *places, uint64_t place)
{
    uint32_t k = 0;

    while (k < holders->places && places[k].place != place) {
        k++;
    }
    if (k == holders->places) {
        places[holders->places++] = (struct place){place, 0};
    }
    return ++places[k].count;
}

static struct holders count_holders(const struct node *node, struct digest lineage)
{
    struct holders holders = {0, 0, 0, 0, 0};
    struct place places[LINKS_MAX];

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (!is_offering(node, other) || !digest_is_equal(other->progress.lineage, lineage)) {
            continue;
        }
        holders.all++;
        holders.trained += other->progress.samples > 0;
        holders.met += is_met(node, other);
        holders.fair += note_place(&holders, places, other->place) <= PLACE_COUNTS;
    }
    return holders;
}

/* The first neighbour in the table with its lineage: each lineage is looked at once. */
static bool is_first(const struct node *node, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++) {
        if (is_offering(node, &node->neighbours[i]) &&
            digest_is_equal(node->neighbours[i].progress.lineage,
                            node->neighbours[index].progress.lineage)) {
            return false;
        }
    }
    return true;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void models_said_changed(struct node *node)
{
    node->models->said.until_ns = 0;
}

static const struct models_said *said(const struct node *node)
{
    struct models_said *said = &node->models->said;
    uint64_t now_ns = node_now(node);

    if (now_ns < said->until_ns && digest_is_equal(said->lineage, node->lineage)) return said;
    *said = (struct models_said){.until_ns = UINT64_MAX, .lineage = node->lineage};
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (!other->has_progress) continue;
        said->heard++;
        said->unlike += is_offering(node, other) && !is_same(node, other);
        if (now_ns < other->avoid_ns) {
            said->until_ns = node_earlier(said->until_ns, other->avoid_ns);
        }
        if (!models_holds(other, node->lineage)) continue;
        said->samples_most = larger(said->samples_most, other->progress.samples);
        said->step_most = larger(said->step_most, larger(other->first_step, other->progress.step));
    }
    return said;
}

/* ---- in training ---- */

static bool outvotes(const struct node *node, struct digest lineage, struct holders ours)
{
    struct holders theirs = count_holders(node, lineage);
    uint32_t own = ours.all + 1;

    if (theirs.met < HOLDERS_LEAST || theirs.met < own) return false;
    if (theirs.met == own && !is_smaller(lineage, node->lineage)) return false;
    return theirs.places >= ours.places;
}

/* After every event, so first what rules it out at once. */
static bool is_outvoted(const struct node *node, struct digest *by)
{
    struct holders ours;
    uint32_t unlike = said(node)->unlike, most = 0;

    if (unlike < HOLDERS_LEAST) return false;
    ours = count_holders(node, node->lineage);
    if (unlike <= ours.all) return false;
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];
        uint32_t met;

        if (!is_offering(node, other) || is_same(node, other) || !is_first(node, i)) continue;
        if (!outvotes(node, other->progress.lineage, ours)) continue;
        met = count_holders(node, other->progress.lineage).met;
        if (met < most || (met == most && !is_smaller(other->progress.lineage, *by))) continue;
        most = met;
        *by = other->progress.lineage;
    }
    return most > 0;
}

/* Links come one by one, and members change their minds: not at the first look. */
static bool is_outvoted_for_long(struct node *node, struct digest *by)
{
    struct models_choice *choice = &node->models->choice;
    uint64_t now_ns = node_now(node);

    if (now_ns < choice->stay_ns || !is_outvoted(node, by)) {
        choice->since_ns = 0;
        return false;
    }
    if (choice->since_ns == 0 || !digest_is_equal(choice->by, *by)) {
        choice->since_ns = now_ns;
        choice->by = *by;
    }
    return now_ns >= choice->since_ns + CHOICE_OUTVOTE_NS;
}

static void tell_unlike(struct node *node)
{
    struct models_choice *choice = &node->models->choice;
    uint32_t unlike = said(node)->unlike;

    if (unlike == 0 || node_now(node) < choice->told_ns + CHOICE_TELL_NS) return;
    if (choice->told_ns == 0) { /* it may well be settled in a moment */
        choice->told_ns = node_now(node) - CHOICE_TELL_NS / 2;
        return;
    }
    choice->told_ns = node_now(node);
    log_warn(node->options.log,
             "%u of %u neighbours train another model, which cannot be averaged with this peer's; "
             "this peer keeps its own unless most neighbours hold another: to have theirs, start "
             "it with a new --out",
             unlike, node->neighbours_count);
}

/* ---- the same lineage ---- */

uint64_t models_median(uint64_t *items, size_t count)
{
    CHECK(count > 0);
    for (size_t i = 1; i < count; i++) {
        for (size_t k = i; k > 0 && items[k - 1] > items[k]; k--) {
            uint64_t held = items[k];

            items[k] = items[k - 1];
            items[k - 1] = held;
        }
    }
    return items[(count - 1) / 2];
}

/* It has begun by itself. */
static bool is_fresh(const struct node *node)
{
    return node->options.resume == NULL && !node->models->choice.has_taken &&
           node->state == NODE_TRAINING && !node->options.is_keeper;
}

/* The step from which others have come too far for rounds with ours to be of use. Who has just
 * begun by itself has next to nothing to mix in. */
static uint64_t far_step(const struct node *node)
{
    uint64_t every = rounds_every(node);

    if (is_fresh(node)) return 2 * (node->step + every) + 1;
    return node->step + NODE_ROUNDS_MISSED_MAX * every + 1;
}

/* By steps, which all exchanges count alike, and by the lower median, so that one who boasts moves
 * nobody but who has no other neighbour. By those who keep the model only where nobody trains it.
 * Those who began with a fresh peer, but a moment sooner, are not ahead of it: what counts there is
 * how far they were when it met them. */
static bool median_step(const struct node *node, uint64_t *step)
{
    uint64_t steps[LINKS_MAX];
    size_t count = 0;
    bool is_trained = false;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (!is_offering(node, other) || !is_same(node, other)) continue;
        if (!other->is_keeper && !is_trained) {
            is_trained = true;
            count = 0;
        }
        if (other->is_keeper && is_trained) continue;
        steps[count++] = is_fresh(node) ? other->first_step : other->progress.step;
    }
    if (count > 0) *step = models_median(steps, count);
    return count > 0;
}

static bool is_behind(const struct node *node)
{
    uint64_t far = far_step(node), step;

    return said(node)->step_most >= far && median_step(node, &step) && step >= far;
}

static bool is_ahead_and_far(const struct node *node, const struct neighbour *other)
{
    return other->progress.samples / 2 > node->model_samples && rounds_is_far(node, other);
}

bool models_most_are_far(const struct node *node)
{
    uint32_t far = 0, near = 0, others = 0;

    if (said(node)->samples_most / 2 <= node->model_samples) return false;
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (other->is_keeper || !models_holds(other, node->lineage)) continue;
        others++;
        if (is_ahead_and_far(node, other)) {
            far++;
        } else if (trust_is_proven(node->trust, other->id)) {
            near++;
        }
    }
    return others > 0 && ((far >= 2 && far > near) || far == others);
}

static bool has_just_begun(const struct node *node)
{
    return node_now(node) < node->begun_ns + NODE_BEGUN_NS;
}

static bool has_mixed(const struct node *node)
{
    return node->round == NULL || rounds_stats(node).mixed > 0; /* or nor ever will */
}

/* A swarm begun anew and one that goes on from checkpoints have models of one lineage, and they may
 * be too far apart to be averaged. Who has just begun loses little. */
static bool has_begun_in_vain(const struct node *node)
{
    return node->options.resume == NULL && has_just_begun(node) && models_most_are_far(node);
}

/* ---- the choice ---- */

static bool choose_in_training(struct node *node, struct models_wanted *wanted)
{
    bool has_taken = node->models->choice.has_taken;

    if (is_outvoted_for_long(node, &wanted->lineage)) return true;
    if (has_begun_in_vain(node)) {
        *wanted = (struct models_wanted){.lineage = node->lineage,
                                         .samples_least = 2 * node->model_samples + 1};
        return true;
    }
    if (has_just_begun(node) && !has_taken && is_behind(node) && !has_mixed(node)) {
        *wanted = (struct models_wanted){.lineage = node->lineage, .step_least = far_step(node)};
        return true;
    }
    tell_unlike(node);
    return false;
}

/* Trained models come first, then those on more hosts, then those that more hold. */
static bool is_held_by_more(struct holders a, struct holders b)
{
    if ((a.trained > 0) != (b.trained > 0)) return a.trained > 0;
    if (a.fair != b.fair) return a.fair > b.fair;
    return a.all > b.all;
}

/* Of trained models that which most hold; where there is none, the initial one of most. */
static bool choose_as_new(const struct node *node, struct models_wanted *wanted)
{
    struct holders best = count_holders(node, node->lineage);

    if (best.trained == 0) { /* this peer is one more of them */
        best.all++;
        best.fair++;
    }
    wanted->lineage = node->lineage;
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];
        struct holders theirs;

        if (!is_offering(node, other) || is_same(node, other) || !is_first(node, i)) continue;
        theirs = count_holders(node, other->progress.lineage);
        if (is_held_by_more(best, theirs)) continue;
        if (!is_held_by_more(theirs, best) &&
            is_smaller(wanted->lineage, other->progress.lineage)) {
            continue;
        }
        best = theirs;
        wanted->lineage = other->progress.lineage;
    }
    wanted->samples_least = best.trained > 0;
    return best.trained > 0 || !digest_is_equal(wanted->lineage, node->lineage);
}

/* One beside one, with nobody to ask: the fewer samples give way, about equal ones the larger
 * lineage. */
static bool gives_way_alone(const struct node *node, const struct neighbour *other)
{
    uint64_t ours = node->model_samples, theirs = other->progress.samples;
    uint64_t larger = ours > theirs ? ours : theirs;
    uint64_t gap = ours > theirs ? ours - theirs : theirs - ours;

    if (gap > larger / 10) return ours < theirs;
    return is_smaller(other->progress.lineage, node->lineage);
}

static bool choose_restarted(const struct node *node, struct models_wanted *wanted)
{
    struct holders ours = count_holders(node, node->lineage), theirs;
    uint32_t own = ours.all + 1, most = 0;

    if (is_behind(node)) {
        *wanted = (struct models_wanted){.lineage = node->lineage, .step_least = far_step(node)};
        return true;
    }
    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        const struct neighbour *other = &node->neighbours[i];

        if (!is_offering(node, other) || is_same(node, other) || !is_first(node, i)) continue;
        theirs = count_holders(node, other->progress.lineage);
        if (theirs.all < own || theirs.all < most || theirs.places < ours.places) continue;
        if (theirs.all == own && own == 1 && !gives_way_alone(node, other)) continue;
        if (theirs.all == own && own > 1 && !is_smaller(other->progress.lineage, node->lineage)) {
            continue;
        }
        most = theirs.all;
        wanted->lineage = other->progress.lineage;
    }
    return most > 0;
}

uint32_t models_unlike(const struct node *node)
{
    return said(node)->unlike;
}

uint32_t models_heard(const struct node *node)
{
    return said(node)->heard;
}

/* Who restarts hears one of several a moment before the others. */
static bool is_hearing(struct node *node)
{
    struct models_choice *choice = &node->models->choice;
    uint32_t heard = models_heard(node);

    if (heard == 0) choice->heard_ns = 0;
    if (choice->heard_ns == 0 && heard > 0) choice->heard_ns = node_now(node);
    return node_now(node) < choice->heard_ns + CHOICE_OUTVOTE_NS;
}

uint32_t models_holders(const struct node *node, struct digest lineage)
{
    return count_holders(node, lineage).all;
}

/* Where each began from data of its own, or from values of its own, the models are unlike, so all
 * of them choose as new ones do, those too that count as training and have not taken a step. */
static bool choose_unbegun(const struct node *node, struct models_wanted *wanted)
{
    bool is_other = choose_as_new(node, wanted);

    if (wanted->samples_least == 0 && models_input_is_agreeing(node)) return false;
    /* That one member has trained already is its word alone. */
    if (wanted->samples_least > 0 && models_input_doubts(node) &&
        models_holders(node, wanted->lineage) < 2) {
        return false;
    }
    if (node->state == NODE_TRAINING && digest_is_equal(wanted->lineage, node->lineage)) {
        return false; /* who has the same model began a moment sooner */
    }
    return is_other;
}

bool models_are_open(const struct node *node)
{
    if (models_input_is_open(node)) return true;
    if (node->own_steps > 0 || node->model_samples > 0) return false;
    return node->options.begins_unlike || node->options.is_keeper;
}

/* What it has is nobody's work, so it goes on to what the others made of it since. */
static bool choose_as_keeper(struct node *node, struct models_wanted *wanted)
{
    uint64_t least, step;

    if (node->model_samples == 0) return choose_as_new(node, wanted) && wanted->samples_least > 0;
    if (is_outvoted_for_long(node, &wanted->lineage)) return true;
    least = models_follow_least(node);
    if (least == UINT64_MAX || !median_step(node, &step) || step < least) return false;
    *wanted = (struct models_wanted){.lineage = node->lineage, .step_least = step};
    return true;
}

enum models_chosen models_choose(struct node *node, struct models_wanted *wanted)
{
    bool is_other;

    *wanted = (struct models_wanted){.samples_least = 0};
    if (models_are_population(node)) return CHOSEN_OURS; /* better ones are copied: population.c */
    if (node->options.is_keeper && node->state == NODE_TRAINING) {
        is_other = choose_as_keeper(node, wanted);
    } else if (models_are_open(node)) {
        is_other = choose_unbegun(node, wanted);
    } else if (node->state == NODE_TRAINING) {
        is_other = choose_in_training(node, wanted);
    } else if (node->model_samples == 0) {
        is_other = choose_as_new(node, wanted);
    } else {
        bool is_hearing_more = is_hearing(node);

        is_other = choose_restarted(node, wanted);
        if (is_hearing_more && (is_other || said(node)->unlike > 0)) return CHOSEN_LATER;
    }
    return is_other ? CHOSEN_OTHER : CHOSEN_OURS;
}

/* Our model was to be given up for what was heard first, and those who were met since say that ours
 * is as good. Where a donor is lost they may be all that is left; ours is kept then, too. */
static bool is_for_few(const struct node *node)
{
    uint32_t ours;
    uint64_t step;

    if (node->models->wanted.step_least > 0) {
        return median_step(node, &step) && step < node->models->wanted.step_least;
    }
    if (node->models->gave_way || node->model_samples == 0) return false;
    if (digest_is_equal(node->models->wanted.lineage, node->lineage)) return false;
    ours = count_holders(node, node->lineage).all;
    return ours > 0 && count_holders(node, node->models->wanted.lineage).all <= ours;
}

bool models_chose_wrong(struct node *node)
{
    struct models_choice *choice = &node->models->choice;
    struct models_wanted wanted = {.samples_least = 0};

    if (is_for_few(node)) return true;
    if (node->models->gave_way || node->model_samples > 0 || !choose_as_new(node, &wanted) ||
        digest_is_equal(wanted.lineage, node->models->wanted.lineage) ||
        !is_held_by_more(count_holders(node, wanted.lineage),
                         count_holders(node, node->models->wanted.lineage))) {
        choice->since_ns = 0;
        return false;
    }
    if (choice->since_ns == 0) choice->since_ns = node_now(node);
    return node_now(node) >= choice->since_ns + CHOICE_OUTVOTE_NS;
}

void models_chose(struct node *node)
{
    struct models_choice *choice = &node->models->choice;

    choice->since_ns = choice->told_ns = 0;
    choice->has_taken = true;
    if (!node->models->gave_way) return;
    choice->stay_ns = node_now(node) + (CHOICE_STAY_NS << choice->given_up);
    choice->given_up += choice->given_up < NODE_DOUBLINGS_MAX;
}

uint64_t models_choice_next_ns(const struct node *node)
{
    const struct models_choice *choice = &node->models->choice;

    if (node->state == NODE_JOINING && choice->heard_ns + CHOICE_OUTVOTE_NS > node_now(node)) {
        return choice->heard_ns + CHOICE_OUTVOTE_NS;
    }
    return choice->since_ns == 0 ? UINT64_MAX : choice->since_ns + CHOICE_OUTVOTE_NS;
}
