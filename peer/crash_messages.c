/* crash_messages: see crash_messages.h. */
#include "peer/crash_messages.h"

#include "base/check.h"
#include "base/crash_point.h"

static const struct {
    enum message_type type;
    enum crash_point sent, received;
} messages[] = {
    {MESSAGE_OFFER, CRASH_PAIR_OFFER_SENT, CRASH_PAIR_OFFER_RECEIVED},
    {MESSAGE_ACCEPT, CRASH_PAIR_ACCEPT_SENT, CRASH_PAIR_ACCEPT_RECEIVED},
    {MESSAGE_REJECT, CRASH_PAIR_REJECT_SENT, CRASH_PAIR_REJECT_RECEIVED},
    {MESSAGE_READY, CRASH_PAIR_READY_SENT, CRASH_PAIR_READY_RECEIVED},
    {MESSAGE_COMMIT, CRASH_PAIR_COMMIT_SENT, CRASH_PAIR_COMMIT_RECEIVED},
    {MESSAGE_OUTCOME_REQ, CRASH_PAIR_OUTCOME_REQ_SENT, CRASH_PAIR_OUTCOME_REQ_RECEIVED},
    {MESSAGE_OUTCOME, CRASH_PAIR_OUTCOME_SENT, CRASH_PAIR_OUTCOME_RECEIVED},
    {MESSAGE_DONE, CRASH_PAIR_DONE_SENT, CRASH_PAIR_DONE_RECEIVED},
    {MESSAGE_FORM, CRASH_GROUP_FORM_SENT, CRASH_GROUP_FORM_RECEIVED},
    {MESSAGE_JOIN, CRASH_GROUP_JOIN_SENT, CRASH_GROUP_JOIN_RECEIVED},
    {MESSAGE_START, CRASH_GROUP_START_SENT, CRASH_GROUP_START_RECEIVED},
    {MESSAGE_MEAN, CRASH_GROUP_MEAN_SENT, CRASH_GROUP_MEAN_RECEIVED},
    {MESSAGE_CREDIT, CRASH_ROUND_CREDIT_SENT, CRASH_ROUND_CREDIT_RECEIVED},
    {MESSAGE_ABORT, CRASH_ROUND_ABORT_SENT, CRASH_ROUND_ABORT_RECEIVED},
    {MESSAGE_PROGRESS, CRASH_JOIN_PROGRESS_SENT, CRASH_JOIN_PROGRESS_RECEIVED},
    {MESSAGE_STATE_REQ, CRASH_JOIN_STATE_REQ_SENT, CRASH_JOIN_STATE_REQ_RECEIVED},
    {MESSAGE_STATE_MANIFEST, CRASH_JOIN_MANIFEST_SENT, CRASH_JOIN_MANIFEST_RECEIVED},
    {MESSAGE_BUCKET_REQ, CRASH_JOIN_BUCKET_REQ_SENT, CRASH_JOIN_BUCKET_REQ_RECEIVED},
    {MESSAGE_STATE_DONE, CRASH_JOIN_STATE_DONE_SENT, CRASH_JOIN_STATE_DONE_RECEIVED},
};

static const struct {
    enum crash_point queued, received;
} data[] = {
    [DATA_OFFER] = {CRASH_ROUND_CHUNK_QUEUED, CRASH_ROUND_CHUNK_RECEIVED},
    [DATA_MEAN] = {CRASH_GROUP_MEAN_CHUNK_QUEUED, CRASH_GROUP_MEAN_CHUNK_RECEIVED},
    [DATA_STATE] = {CRASH_JOIN_BUCKET_QUEUED, CRASH_JOIN_BUCKET_RECEIVED},
};

void crash_message_sent(uint8_t type)
{
    for (size_t i = 0; i < ARRAY_COUNT(messages); i++) {
        if (messages[i].type == (enum message_type)type) crash_point(messages[i].sent);
    }
}

void crash_message_received(uint8_t type)
{
    for (size_t i = 0; i < ARRAY_COUNT(messages); i++) {
        if (messages[i].type == (enum message_type)type) crash_point(messages[i].received);
    }
}

void crash_data_queued(uint8_t kind)
{
    if (kind < ARRAY_COUNT(data)) crash_point(data[kind].queued);
}

void crash_data_received(uint8_t kind)
{
    if (kind < ARRAY_COUNT(data)) crash_point(data[kind].received);
}
