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

bool exchange_is_proven(const struct exchange_options *options, struct peer_id id)
{
    return options->standing == NULL || options->standing(options->context, id) == STANDING_PROVEN;
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

uint64_t exchange_trips_ns(const struct exchange_options *options, struct peer_id peer,
                           uint32_t trips, uint64_t most_ns)
{
    uint64_t answer = options->answer_ns == NULL ? 0 : options->answer_ns(options->context, peer);

    if (answer > most_ns) return most_ns;
    return answer * trips < most_ns ? answer * trips : most_ns;
}

float exchange_radius(const struct exchange_options *options,
                      const struct robust_history *distances)
{
    if (!options->clips) return FLT_MAX;
    return robust_radius(distances, options->near == NULL ? 0 : *options->near);
}

uint64_t exchange_answer_ns(const struct exchange_options *options, const struct peer_id *peers,
                            uint32_t count)
{
    static const uint64_t most_ns = 3 * NS_PER_S;
    uint64_t sorted[GROUP_MEMBERS_MAX];
    uint32_t known = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t answer_ns = exchange_trips_ns(options, peers[i], 1, most_ns);
        uint32_t at = known;

        if (answer_ns == 0) continue;
        for (; at > 0 && sorted[at - 1] > answer_ns; at--) { /* insertion sort */
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = answer_ns;
        known++;
    }
    return known == 0 ? 0 : sorted[known / 2];
}

uint64_t exchange_line_wait_ns(const struct exchange_options *options, struct peer_id peer,
                               uint32_t chunks, uint64_t most_ns)
{
    enum { TIMES = 4 };
    uint64_t rate = options->line == NULL ? 0 : options->line(options->context, peer);
    double bytes = (double)chunks * options->chunk_bytes, wait_ns;

    if (rate == 0) return 0;
    wait_ns = TIMES * bytes * (double)NS_PER_S / (double)rate;
    return wait_ns < (double)most_ns ? (uint64_t)wait_ns : most_ns;
}
