/*
 * way: how a peer gets out where it may not dial as it likes: through a SOCKS5 or HTTP proxy, or
 * by a command whose standard input and output are the connection. Here are the flags, and what is
 * said with a proxy until the connection stands. Pure; uv/way.c has the sockets and the children.
 *
 * SOCKS5 (RFC 1928, 1929): names go to the proxy as they are, and so does every other address: it
 * may know names that are unknown here, and nobody here is asked for them. HTTP: CONNECT (RFC 9110,
 * 9.3.6). A proxy is a stranger: of its answers a bounded part is kept, what breaks the form ends
 * the dial, and so does what comes after the answer, for who is dialled never speaks first.
 */
#ifndef GRAPEVINE_PEER_ENV_WAY_H
#define GRAPEVINE_PEER_ENV_WAY_H

#include "base/fault.h"
#include "gossip/wire/address.h"

enum way_kind { WAY_DIRECT, WAY_SOCKS5, WAY_HTTP, WAY_COMMAND };

enum {
    WAY_SECRET_BYTES = 256, /* of a user's name or a password, with NUL (RFC 1929: 255) */
    WAY_COMMAND_BYTES = 1024,
    WAY_WORDS_MAX = 32,
    WAY_WORDS_BYTES = 4096, /* of a command's words, for the longest name there is */
    WAY_SAY_BYTES = 2048,
    WAY_SOCKS_BYTES = 4 + 1 + 255 + 2, /* the longest answer of SOCKS5 */
    WAY_HTTP_BYTES_MAX = 8192          /* of a proxy's answer, headers and all */
};

struct way {
    enum way_kind kind;
    struct address proxy;                                    /* SOCKS5, HTTP */
    char user[WAY_SECRET_BYTES], password[WAY_SECRET_BYTES]; /* "": none */
    char command[WAY_COMMAND_BYTES];
};

/* As the user gave them; borrowed. */
struct way_flags {
    const char *proxy, *dial_command; /* NULL: not given */
};

/** RC_USAGE, naming the flag. Whoever keeps `way` wipes it: it holds a password. */
MUST_USE enum rc way_parse(const struct way_flags *flags, struct way *way, struct fault *why);
/** How dials go, for people, without what is secret: "the SOCKS5 proxy 10.0.0.1:1080". */
void way_describe(const struct way *way, char *text, size_t cap);

/** The command's words for `target`, NULL after the last; their bytes are in `room`. There is no
 * shell: words are parted by blanks, and %h, %p and %% are the only signs, so that whatever others
 * give as their address stays inside of one word. RC_LIMIT where they do not fit. */
MUST_USE enum rc way_command_words(const struct way *way, const struct address *target,
                                   char room[WAY_WORDS_BYTES], char *words[WAY_WORDS_MAX + 1]);

enum way_state { WAY_GREETING, WAY_PASSWORD, WAY_ASKING, WAY_OPEN };

struct way_talk {
    const struct way *way; /* borrowed */
    struct address target;
    enum way_state state;
    uint8_t heard[WAY_SOCKS_BYTES]; /* of the answer that is awaited; of HTTP its first bytes */
    size_t heard_count;             /* all that came of it */
    uint8_t line_ends;              /* HTTP: line ends in a row */
    uint8_t say[WAY_SAY_BYTES];     /* to be sent now; who sends it sets say_count to 0 */
    size_t say_count;
};

/** The first words to `way`'s proxy, to be put through to `target`. */
void way_talk_begin(struct way_talk *talk, const struct way *way, const struct address *target);
/** What the proxy sent. It may fill `say`; in the end `state` is WAY_OPEN. RC_FORMAT, RC_AUTH,
 *  RC_REFUSED, RC_NOT_FOUND, RC_TIMEOUT, RC_LIMIT, with `why` in words that last. */
MUST_USE enum rc way_talk_hear(struct way_talk *talk, const uint8_t *bytes, size_t count,
                               const char **why);

#endif
