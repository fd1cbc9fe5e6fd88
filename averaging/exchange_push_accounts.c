/*
 * What each sender has given, and how much more of it is taken. All weights sum to the number of
 * peers, and nobody can see whether a weight that is claimed is there; but where all keep to the
 * rule, senders give a receiver about as much as each other, whatever their pace (what flows into a
 * peer flows out of it, a slow one gives seldom and much), or as much as it gives them. So of one
 * sender no more is taken than twice what the median of the others has given, or than we have given
 * it, and CREDIT more: whoever mints weight counts as two or three of the others. What is not taken
 * stays with the sender: an honest one that is above that for a while loses nothing, and nobody is
 * scored, for who gathered much and who made it up look alike.
 *
 * Whoever has up to FREE takes from anybody what makes it that heavy: so where no more than FREE
 * peers are, who together have no more than that, nothing is ever cut while nobody mints, whatever
 * their pace, and nobody who is light starves because one of those who give to it gave much and
 * another little. Past PART less and less is taken on credit, and past PART + 1 half of the median
 * or what it has been given: so what is minted does not add up for ever, and who cannot give
 * gathers no more. Accounts are halved every HALF_LIFE shares that came. They are not in
 * checkpoints: a restart gives each its credit again, once. Loop thread; pure.
 */
#include "averaging/exchange_push.h"

#include <math.h>

enum { HALF_LIFE = 64, LATELY = 64 }; /* shares that came */

#define PART   2.0
#define CREDIT 4.0
#define FREE   4.0

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
    *place = (struct push_account){.id = id, .used = push->shares};
    return place;
}

void push_account_given(struct push *push, struct peer_id from, double weight)
{
    struct push_account *account = account_of(push, from);

    account->given += weight;
    account->used = ++push->shares;
    if (push->shares % HALF_LIFE != 0) return;
    for (uint32_t i = 0; i < push->accounts_count; i++) {
        push->accounts[i].given /= 2;
        push->accounts[i].had /= 2;
    }
}

void push_account_had(struct push *push, struct peer_id to, double weight)
{
    account_of(push, to)->had += weight;
}

/* What the others have given that gave anything lately, the lower one of two in the middle. */
static double usual_of_others(const struct push *push, struct peer_id id)
{
    double sorted[PUSH_ACCOUNTS_MAX];
    uint32_t count = 0;

    for (uint32_t i = 0; i < push->accounts_count; i++) {
        const struct push_account *account = &push->accounts[i];
        uint32_t at = count;

        if (peer_id_is_equal(account->id, id) || !(account->given > 0)) continue;
        if (push->shares - account->used >= LATELY) continue;
        for (; at > 0 && sorted[at - 1] > account->given; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = account->given;
        count++;
    }
    return count == 0 ? 0 : sorted[(count - 1) / 2];
}

double push_account_allows(const struct push *push, struct peer_id from)
{
    const struct push_account *account = account_find(push, from);
    double given = account == NULL ? 0 : account->given, had = account == NULL ? 0 : account->had;
    double usual = usual_of_others(push, from), allowed;
    double eased = fmin(fmax(PART + 1 - push->weight, 0), 1); /* 1: we have no more than our part */

    allowed = fmax(usual * (0.5 + 1.5 * eased), had) + CREDIT * eased - given;
    return fmax(allowed, FREE - push->weight);
}
