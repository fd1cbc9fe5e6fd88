/* See conduct.h. */
#include "averaging/group/conduct.h"

#include "averaging/core/times.h"

enum {
    LEFT_EACH = 4, /* as much as so many parts returned */
    LEFT_CUT = 2,
    LEFT_MAX = 8, /* the third is a habit, and each one from then on */
    VAIN_MAX = 8, /* of one that is not proven half as many; so of the next */
    FORMS_MAX = 8
};

static struct conduct_of *find(struct conduct *conduct, struct peer_id peer)
{
    for (uint32_t i = 0; i < CONDUCT_MAX; i++) {
        if (peer_id_is_equal(conduct->of[i].peer, peer)) return &conduct->of[i];
    }
    return NULL;
}

static uint32_t sum(const struct conduct_of *of)
{
    return of->left + of->vain + of->forms;
}

static struct conduct_of *find_or_add(struct conduct *conduct, struct peer_id peer)
{
    struct conduct_of *found = find(conduct, peer), *least = &conduct->of[0];

    if (found != NULL) return found;
    for (uint32_t i = 1; i < CONDUCT_MAX; i++) {
        if (sum(&conduct->of[i]) < sum(least)) least = &conduct->of[i];
    }
    *least = (struct conduct_of){.peer = peer};
    return least;
}

bool conduct_left(struct conduct *conduct, struct peer_id member, enum conduct_way way,
                  struct peer_id proposer, bool is_ours)
{
    struct conduct_of *of = find_or_add(conduct, member);

    if (!is_ours && peer_id_is_equal(of->proposer, proposer)) return false;
    of->proposer = proposer;
    of->left += way == CONDUCT_CUT ? LEFT_CUT : LEFT_EACH;
    if (of->left <= LEFT_MAX) return false;
    of->left = LEFT_MAX;
    return true;
}

void conduct_returned(struct conduct *conduct, struct peer_id member)
{
    struct conduct_of *of = find(conduct, member);

    if (of != NULL && of->left > 0) of->left--;
}

static uint32_t limit(uint32_t most, bool is_proven)
{
    return is_proven ? most : most / 2;
}

bool conduct_vain(struct conduct *conduct, struct peer_id proposer, bool is_proven)
{
    struct conduct_of *of = find_or_add(conduct, proposer);

    if (++of->vain < limit(VAIN_MAX, is_proven)) return false;
    of->vain /= 2;
    return true;
}

void conduct_came_about(struct conduct *conduct, struct peer_id proposer)
{
    struct conduct_of *of = find(conduct, proposer);

    if (of != NULL) of->vain = 0;
}

bool conduct_form(struct conduct *conduct, struct peer_id proposer, bool is_proven, uint64_t now_ns)
{
    struct conduct_of *of = find_or_add(conduct, proposer);

    if (of->forms == 0) of->forms_ns = now_ns;
    while (of->forms > 0 && now_ns - of->forms_ns >= FORM_FORGET_NS) {
        of->forms--; /* who is early now and then keeps nobody */
        of->forms_ns += FORM_FORGET_NS;
    }
    if (++of->forms <= limit(FORMS_MAX, is_proven)) return false;
    of->forms /= 2;
    return true;
}

void conduct_start(struct conduct *conduct, struct peer_id proposer)
{
    struct conduct_of *of = find(conduct, proposer);

    if (of != NULL) of->forms = 0;
}
