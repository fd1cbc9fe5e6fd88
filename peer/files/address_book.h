/*
 * address_book: what a peer remembers of its swarm over restarts, in `swarm.json` of --out DIR: its
 * incarnation, up to 64 addresses that led to members, best first, and anchors, which are the
 * members it has been linked with longest. So a peer finds its swarm again when every address of
 * --bootstrap is dead.
 */
#ifndef GRAPEVINE_PEER_FILES_ADDRESS_BOOK_H
#define GRAPEVINE_PEER_FILES_ADDRESS_BOOK_H

#include "base/fault.h"
#include "base/log.h"
#include "gossip/wire/limits.h"
#include "peer/env/env.h"

enum { ADDRESS_BOOK_MAX = 64, ADDRESS_BOOK_ANCHORS_MAX = 4 };

struct address_book {
    uint64_t incarnation; /* the last one in use; at most 2^62 */
    char addresses[ADDRESS_BOOK_MAX][ADDRESS_BYTES_MAX];
    size_t count;
    char anchors[ADDRESS_BOOK_ANCHORS_MAX][ADDRESS_BYTES_MAX];
    size_t anchors_count;
};

/** Put an address last. False: no room, no address, or known already. */
bool address_book_add(struct address_book *book, const char *address);
bool address_book_add_anchor(struct address_book *book, const char *address);
/** From the text of the file, all of it or nothing: RC_PARSE, RC_LIMIT; `why` says what is wrong.
 */
MUST_USE enum rc address_book_parse(const char *text, size_t bytes, struct address_book *book,
                                    struct fault *why);
char *address_book_format(const struct address_book *book); /* mem_free() */
/** From the env's store. None there: empty. One that is damaged is left out with a warning, since
 *  nothing in it is worth more than a start; RC_IO as the store says. */
MUST_USE enum rc address_book_load(struct env *env, const struct log *log,
                                   struct address_book *book, struct fault *why);
/** Blocking: before the loop runs. */
MUST_USE enum rc address_book_store(struct env *env, const struct address_book *book,
                                    struct fault *why);

#define ADDRESS_BOOK_FILE "swarm.json"

#endif
