/* The list of commands an exchange answers with. Loop thread. */
#include "averaging/core/exchange.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "base/mem.h"

#include <float.h>
#include <string.h>

enum { COMMANDS_FIRST = 8 };

void commands_init(struct commands *commands)
{
    memset(commands, 0, sizeof *commands);
}

void commands_deinit(struct commands *commands)
{
    mem_free(commands->items);
    commands_init(commands);
}

void commands_clear(struct commands *commands)
{
    commands->count = 0;
    commands->is_short_of_memory = false;
}

bool commands_reserve(struct commands *commands, uint32_t count)
{
    struct command *items;

    if (count <= commands->max) return true;
    items = mem_resize(commands->items, count * sizeof *items);
    if (items == NULL) return false;
    commands->items = items;
    commands->max = count;
    return true;
}

struct command *commands_add(struct commands *commands, enum command_type type)
{
    uint32_t max = commands->max == 0 ? COMMANDS_FIRST : 2 * commands->max;
    uint32_t kept = type == COMMAND_OVER ? 0 : 1; /* what was decided is always said */
    struct command *added;

    if (commands->count + kept >= commands->max && !commands_reserve(commands, max)) {
        commands->is_short_of_memory = true;
        return NULL;
    }
    added = &commands->items[commands->count++];
    memset(added, 0, sizeof *added);
    added->type = type;
    return added;
}

struct message *commands_send(struct commands *commands, struct peer_id to, enum message_type type)
{
    struct command *send = commands_add(commands, COMMAND_SEND);

    if (send == NULL) return NULL;
    send->to = to;
    send->message.type = type;
    return &send->message;
}

void commands_score(struct commands *commands, struct peer_id of, enum score_reason score,
                    const char *reason)
{
    struct command *command = commands_add(commands, COMMAND_SCORE);

    if (command == NULL) return;
    command->to = of;
    command->score = score;
    command->reason = reason;
}

void commands_abort(struct commands *commands, struct peer_id to, const struct round_key *key,
                    enum abort_code code)
{
    struct message *message = commands_send(commands, to, MESSAGE_ABORT);

    if (message == NULL) return;
    message->as.abort.key = *key;
    message->as.abort.code = code;
}

bool round_key_is_equal(const struct round_key *a, const struct round_key *b)
{
    return a->counter == b->counter && peer_id_is_equal(a->initiator, b->initiator) &&
           boot_id_is_equal(a->boot, b->boot);
}

enum standing exchange_standing(const struct exchange_options *options, struct peer_id id)
{
    return options->standing == NULL ? STANDING_PROVEN : options->standing(options->context, id);
}

bool exchange_is_proven(const struct exchange_options *options, struct peer_id id)
{
    return exchange_standing(options, id) == STANDING_PROVEN;
}

uint64_t exchange_stream(const struct round_key *key)
{
    uint8_t bytes[PEER_ID_BYTES + BOOT_ID_BYTES + 8];
    struct digest digest;

    memcpy(bytes, key->initiator.bytes, PEER_ID_BYTES);
    memcpy(bytes + PEER_ID_BYTES, key->boot.bytes, BOOT_ID_BYTES);
    store_le64(bytes + PEER_ID_BYTES + BOOT_ID_BYTES, key->counter);
    digest = hash_of(bytes, sizeof bytes);
    return load_le64(digest.bytes) & STREAM_MAX;
}

uint32_t exchange_credit(const struct exchange_options *options, uint32_t out, uint32_t wanted)
{
    return options->credit == NULL ? wanted : options->credit(options->context, out, wanted);
}

float exchange_radius(const struct exchange_options *options,
                      const struct robust_history *distances)
{
    float radius = options->clips ? robust_radius(distances, options->bounds) : FLT_MAX;

    return radius < FLT_MAX ? radius : FLT_MAX; /* a norm may overflow where no value does */
}
