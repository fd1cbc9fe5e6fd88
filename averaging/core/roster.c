/* roster: see roster.h. */
#include "averaging/core/roster.h"

uint32_t roster_find(const struct roster *roster, struct peer_id id)
{
    for (uint32_t i = 0; i < roster->count; i++) {
        if (peer_id_is_equal(roster->refs[i].id, id)) return i;
    }
    return ROSTER_NONE;
}

bool roster_has(const struct roster *roster, struct peer_id id)
{
    return roster_find(roster, id) != ROSTER_NONE;
}

uint32_t roster_add(struct roster *roster, struct member_ref ref)
{
    uint32_t place = roster_find(roster, ref.id);

    if (place == ROSTER_NONE) {
        if (roster->count == LINKS_MAX) return ROSTER_NONE;
        place = roster->count++;
    }
    roster->refs[place] = ref;
    return place;
}

uint32_t roster_remove(struct roster *roster, struct peer_id id)
{
    uint32_t place = roster_find(roster, id);

    if (place != ROSTER_NONE) roster->refs[place] = roster->refs[--roster->count];
    return place;
}
