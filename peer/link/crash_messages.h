/*
 * crash_messages: the crash points of messages (base/crash_point.h): which one a message passes on
 * its way out, and which on its way in. Any thread.
 */
#ifndef GRAPEVINE_PEER_LINK_CRASH_MESSAGES_H
#define GRAPEVINE_PEER_LINK_CRASH_MESSAGES_H

#include "gossip/wire/messages.h"

/** A control message was handed to its link. `type`: of its inner header. */
void crash_message_sent(uint8_t type);
/** One is about to be acted on. */
void crash_message_received(uint8_t type);
/** A DATA record was queued, or has arrived. `kind`: enum data_kind. */
void crash_data_queued(uint8_t kind);
void crash_data_received(uint8_t kind);

#endif
