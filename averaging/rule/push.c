/*
 * rule push-sum: what a share does to the model (SGP: Assran et al. 2018, arXiv:1811.10792; GoSGD:
 * Blot et al. 2016, arXiv:1611.09726). With z the model at the snapshot and omega its weight, a
 * share of weight w_out that others decode as y_out leaves, and one of weight w_in that holds y_in
 * comes in:
 *
 *   z' = (omega z - w_out y_out + w_in y_in) / omega'      omega' = omega - w_out + w_in
 *   z' - z = s (y_in - z) + t (z - y_out)                  s = w_in / omega', t = w_out / omega'
 *
 * so omega z, summed over all peers and what is under way, stays what it was, codec losses
 * included: the sender keeps what its share did not say. With a lossless codec y_out = z, and the
 * sender's model does not move. Steps taken since the snapshot count as taken afterwards. Where a
 * device encodes and the snapshot itself is not at hand, z in the second line is y_out: what a
 * codec loses of (w_out - w_in) z is then lost.
 *
 * Gathering is rule_mean's. Runs in jobs of the exchange lane, one at a time.
 */
#include "averaging/rule/internal.h"

#include "base/check.h"
#include "base/mem.h"

struct rule {
    struct rule *mean; /* a rule_mean, which gathers */
    size_t values;
    const float *own, *exact; /* NULL between rounds; exact: or if not at hand */
    float sent;               /* t */
};

static void push_destroy(struct rule *rule)
{
    if (rule == NULL) return;
    rule_mean.destroy(rule->mean);
    mem_free(rule);
}

static struct rule *push_create(size_t values, const struct rule_settings *settings)
{
    struct rule *rule = mem_alloc(sizeof *rule);

    if (rule == NULL) return NULL;
    rule->values = values;
    rule->mean = rule_mean.create(values, settings);
    if (rule->mean != NULL) return rule;
    push_destroy(rule);
    return NULL;
}

static void push_set_members(struct rule *rule, uint32_t members)
{
    (void)rule;
    (void)members;
}

static void push_set_sent(struct rule *rule, float sent, const float *exact)
{
    CHECK(sent >= 0);
    rule->sent = sent;
    rule->exact = exact == rule->own ? NULL : exact;
}

/* The weight is the exchange's, and what is under way is kept by the round. */
static size_t push_state(const struct rule *rule, const float *planes[RULE_STATE_MAX])
{
    return rule_mean.state(rule->mean, planes);
}

static enum rc push_restore(struct rule *rule, const float *const *planes, size_t count)
{
    return rule_mean.restore(rule->mean, planes, count);
}

static void push_forget(struct rule *rule)
{
    (void)rule;
}

static void push_begin(struct rule *rule, const struct rule_view *view)
{
    rule->own = view->own;
    rule->exact = NULL;
    rule->sent = 0;
    rule_mean.begin(rule->mean, view);
}

static enum rc push_absorb(struct rule *rule, struct range range, float weight, const float *in)
{
    return rule_mean.absorb(rule->mean, range, weight, in);
}

static enum rc push_reduce(struct rule *rule, struct range range, float *out)
{
    return rule_mean.reduce(rule->mean, range, out);
}

static enum rc push_agree(struct rule *rule, struct range range, const float *in)
{
    return rule_mean.agree(rule->mean, range, in);
}

static void push_settle(struct rule *rule, const uint8_t *bitmap, size_t chunk_values, float scale,
                        float *difference)
{
    float kept = rule->sent - scale;

    rule_mean.settle(rule->mean, bitmap, chunk_values, scale, difference);
    for (size_t i = 0; rule->exact != NULL && i < rule->values; i++) {
        difference[i] += kept * (rule->exact[i] - rule->own[i]);
    }
    rule->own = rule->exact = NULL;
}

static void push_cancel(struct rule *rule)
{
    rule->own = rule->exact = NULL;
    rule_mean.cancel(rule->mean);
}

static float push_squared_distance(struct rule *rule, struct range range)
{
    return rule_mean.squared_distance(rule->mean, range);
}

const struct rule_ops rule_push = {
    .name = "push-sum",
    .is_push = true,
    .keeps_weight = true,
    .create = push_create,
    .destroy = push_destroy,
    .set_members = push_set_members,
    .set_sent = push_set_sent,
    .state = push_state,
    .restore = push_restore,
    .forget = push_forget,
    .begin = push_begin,
    .absorb = push_absorb,
    .reduce = push_reduce,
    .agree = push_agree,
    .settle = push_settle,
    .cancel = push_cancel,
    .squared_distance = push_squared_distance,
};
