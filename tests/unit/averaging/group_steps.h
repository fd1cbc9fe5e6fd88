/* Proposals of a group of three, for tests that move its exchange by hand. */
#ifndef GRAPEVINE_TESTS_UNIT_AVERAGING_GROUP_STEPS_H
#define GRAPEVINE_TESTS_UNIT_AVERAGING_GROUP_STEPS_H

#include "tests/unit/averaging/steps.h"

#include "averaging/group/group.h"

/* A proposal of one of them to 1, 2 and 3; a START is the same, and says what they say: nothing. */
static inline struct message form_from(uint8_t from, uint32_t chunks, uint32_t ballot)
{
    static const uint8_t statements[3 * STATEMENT_BYTES];
    struct message message = {.type = MESSAGE_FORM};
    struct message_form *form = &message.as.form;

    form->round = 0;
    form->ballot = ballot;
    form->chunks = chunks;
    form->lineage.bytes[0] = 9;
    form->deadline_ms = 1000;
    form->members_count = 3;
    form->statements = statements;
    form->statements_bytes = sizeof statements;
    form->members[0] = (struct member_ref){id_of(from), boot_of(from)};
    for (uint8_t i = 1, at = 1; i <= 3; i++) {
        if (i != from) form->members[at++] = (struct member_ref){id_of(i), boot_of(i)};
    }
    return message;
}

static inline uint64_t stream_from(uint8_t from, uint64_t round)
{
    const struct round_key key = {id_of(from), boot_of(from), round};

    return exchange_stream(&key);
}

#endif
