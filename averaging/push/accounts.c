/*
 * What each sender has given, and how much more of it is taken. All weights sum to the number of
 * peers, and nobody can see whether a weight that is claimed is there; but where all keep to the
 * rule, senders give a receiver about as much as each other, whatever their pace (what flows into a
 * peer flows out of it, a slow one gives seldom and much), or as much as it gives them. So of one
 * sender no more is taken than twice what the median of the others has given, or than we have given
 * it, and CREDIT more: whoever mints weight counts as two or three of the others. What is not taken
 * stays with the sender: an honest one that is above that for a while loses nothing, and nobody is
 * scored, for who gathered much and who made it up look alike. Accounts are halved every HALF_LIFE
 * of our own shares that arrived: our own pace, which nobody who sends more often than others makes
 * quicker.
 *
 * Whoever has up to FREE takes from anybody what makes it that heavy: so where no more than FREE
 * peers are, who together have no more than that, nothing is ever cut while nobody mints, whatever
 * their pace, and nobody who is light starves because one of those who give to it gave much and
 * another little, or has only just come.
 *
 * Weights only mean something beside each other, and where somebody mints all of them grow. Among
 * honest peers the median never reaches HEAVY while all are seen: so what is above it was minted,
 * and all who see it give up as large a part of their own. Accounts are not in checkpoints: a
 * restart gives each its credit again, once. Loop thread; pure.
 */
#include "averaging/push/push.h"

#include <math.h>

enum { HALF_LIFE = 64, LATELY = 64 }; /* of our shares that arrived */

#define CREDIT 4.0
#define FREE   4.0
#define HEAVY  8.0

static const struct push_account *account_find(const struct push *push, struct peer_id id)
{
    for (uint32_t i = 0; i < push->accounts_count; i++) {
        if (peer_id_is_equal(push->accounts[i].id, id)) return &push->accounts[i];
    }
    return NULL;
}

/* Of more peers than can be linked the one that was silent for the longest time gives way. */
static struct push_account *account_of(struct push *push, struct peer_id id)
{
    const struct push_account *found = account_find(push, id);
    struct push_account *place = &push->accounts[0];

    if (found != NULL) return &push->accounts[found - push->accounts];
    if (push->accounts_count < PUSH_ACCOUNTS_MAX) {
        place = &push->accounts[push->accounts_count++];
    } else {
        for (uint32_t i = 1; i < PUSH_ACCOUNTS_MAX; i++) {
            if (push->accounts[i].used < place->used) place = &push->accounts[i];
        }
    }
    *place = (struct push_account){.id = id, .used = push->given};
    return place;
}

void push_account_claimed(struct push *push, struct peer_id from, double weight)
{
    account_of(push, from)->claimed = weight;
}

void push_account_given(struct push *push, struct peer_id from, double weight)
{
    struct push_account *account = account_of(push, from);

    account->given += weight;
    account->used = push->given;
}

static void accounts_scale(struct push *push, double factor)
{
    for (uint32_t i = 0; i < push->accounts_count; i++) {
        push->accounts[i].given *= factor;
        push->accounts[i].had *= factor;
    }
}

void push_account_had(struct push *push, struct peer_id to, double weight)
{
    account_of(push, to)->had += weight;
    if (++push->given % HALF_LIFE == 0) accounts_scale(push, 0.5);
}

/* Of two in the middle the lower one; 0 of none. */
static double median(double *values, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        double value = values[i];
        uint32_t at = i;

        for (; at > 0 && values[at - 1] > value; at--) {
            values[at] = values[at - 1];
        }
        values[at] = value;
    }
    return count == 0 ? 0 : values[(count - 1) / 2];
}

static bool gave_lately(const struct push *push, const struct push_account *account)
{
    return account->given > 0 && push->given - account->used < LATELY;
}

static double usual_of_others(const struct push *push, struct peer_id id)
{
    double given[PUSH_ACCOUNTS_MAX];
    uint32_t count = 0;

    for (uint32_t i = 0; i < push->accounts_count; i++) {
        const struct push_account *account = &push->accounts[i];

        if (peer_id_is_equal(account->id, id) || !gave_lately(push, account)) continue;
        given[count++] = account->given;
    }
    return median(given, count);
}

double push_account_allows(const struct push *push, struct peer_id from)
{
    const struct push_account *account = account_find(push, from);
    double given = account == NULL ? 0 : account->given, had = account == NULL ? 0 : account->had;

    return fmax(fmax(2 * usual_of_others(push, from), had) + CREDIT - given, FREE - push->weight);
}

void push_account_weigh(struct push *push)
{
    double weights[PUSH_ACCOUNTS_MAX + 1] = {push->weight}, usual;
    uint32_t count = 1;

    for (uint32_t i = 0; i < push->accounts_count; i++) {
        if (gave_lately(push, &push->accounts[i])) weights[count++] = push->accounts[i].claimed;
    }
    usual = median(weights, count);
    if (usual <= HEAVY) return;
    push->weight *= HEAVY / usual;
    accounts_scale(push, HEAVY / usual);
}
