/* An exchange moved by hand, step by step: ids, a start, and what it sent. */
#ifndef GRAPEVINE_TESTS_UNIT_AVERAGING_STEPS_H
#define GRAPEVINE_TESTS_UNIT_AVERAGING_STEPS_H

#include "averaging/core/exchange.h"
#include "tests/check.h"

static const struct digest nothing = {{0}};

static inline struct peer_id id_of(uint8_t number)
{
    return (struct peer_id){{number}};
}

static inline struct boot_id boot_of(uint8_t number)
{
    return (struct boot_id){{number}};
}

static inline struct exchange *start(const struct exchange_ops *ops, uint8_t number,
                                     uint32_t chunks, struct commands *out)
{
    struct exchange_options options = {
        .self = id_of(number), .boot = boot_of(number), .chunks = chunks};
    struct exchange *exchange = ops->create(&options);
    struct digest lineage = {{9}};

    assert_non_null(exchange);
    commands_init(out);
    ops->set_lineage(exchange, lineage, out);
    return exchange;
}

static inline const struct command *find(const struct commands *out, enum command_type type)
{
    for (uint32_t i = 0; i < out->count; i++) {
        if (out->items[i].type == type) return &out->items[i];
    }
    return NULL;
}

static inline const struct message *sent(const struct commands *out, enum message_type type)
{
    for (uint32_t i = 0; i < out->count; i++) {
        const struct command *command = &out->items[i];

        if (command->type == COMMAND_SEND && command->message.type == type) {
            return &command->message;
        }
    }
    return NULL;
}

#endif
