/* recorder: see recorder.h. */
#include "peer/round/recorder.h"

#include <stddef.h>
#include <string.h>

void recorder_add(struct recorder *recorder, struct round_record record)
{
    recorder->rounds[recorder->count++ % RECORDER_ROUNDS] = record;
    for (size_t i = 0; i < RECORDER_REASONS && record.reason != NULL; i++) {
        if (recorder->reasons[i].reason != NULL &&
            strcmp(recorder->reasons[i].reason, record.reason) != 0) {
            continue;
        }
        recorder->reasons[i].reason = record.reason;
        recorder->reasons[i].count++;
        break;
    }
}

const struct round_record *recorder_at(const struct recorder *recorder, uint64_t back)
{
    if (back >= recorder->count || back >= RECORDER_ROUNDS) return NULL;
    return &recorder->rounds[(recorder->count - 1 - back) % RECORDER_ROUNDS];
}
