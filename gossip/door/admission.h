/*
 * admission: who may be a member besides holding the swarm's key. Three lists, any of which may be
 * in force; who is to come in must satisfy each: an allow-list of public keys, a certificate signed
 * by the swarm's owner (the authority), and a deny list signed by the owner, whose serial only
 * rises. Pure: texts and the time of day come in. Loop thread.
 *
 *   allow   a public key a line (64 hexadecimal digits), then anything; # begins a comment
 *   deny    grapevine-deny-1 / serial N / a public key a line / signature SIGNATURE
 */
#ifndef GRAPEVINE_GOSSIP_DOOR_ADMISSION_H
#define GRAPEVINE_GOSSIP_DOOR_ADMISSION_H

#include "gossip/signed/certificate.h"

enum { ALLOW_KEYS_MAX = 8192, DENY_KEYS_MAX = 1024, LIST_BYTES_MAX = 1024 * 1024 };

/* Public keys, sorted, each once. */
struct key_list {
    uint8_t (*keys)[PUBLIC_KEY_BYTES]; /* from mem_*; NULL: none */
    size_t count;
};

void key_list_deinit(struct key_list *list);
bool key_list_has(const struct key_list *list, const uint8_t key[PUBLIC_KEY_BYTES]);

/** RC_PARSE names the line and what is wrong with it, also when there is no key at all (a file cut
 *  to nothing must not shut everybody out); RC_LIMIT, RC_NOMEM. `list` is written on RC_OK only. */
MUST_USE enum rc allow_parse(const char *text, size_t bytes, struct key_list *list,
                             struct fault *why);

struct deny_list {
    struct key_list keys;
    uint64_t serial; /* 0: there is no list */
    uint8_t signature[SIGNATURE_BYTES];
};

void deny_list_deinit(struct deny_list *deny);
/** Keys one a line as in an allow-list (it may be empty), signed with `serial`, which is above 0.
 */
MUST_USE enum rc deny_make(const char *text, size_t bytes, uint64_t serial,
                           const struct identity *authority, struct digest run_id,
                           struct deny_list *deny, struct fault *why);
/** RC_PARSE: the form; RC_AUTH: not signed by `authority` for this run; RC_LIMIT, RC_NOMEM. */
MUST_USE enum rc deny_parse(const char *text, size_t bytes,
                            const uint8_t authority[PUBLIC_KEY_BYTES], struct digest run_id,
                            struct deny_list *deny, struct fault *why);
/** The file's text, from mem_*; NULL: no memory. */
char *deny_format(const struct deny_list *deny);

struct admission {
    struct digest run_id;
    bool has_allow, has_authority; /* authority: members need its certificate */
    struct key_list allow;
    uint8_t authority[PUBLIC_KEY_BYTES];
    struct deny_list deny;
};

void admission_deinit(struct admission *admission);
/** May who proved to be `hello` come in, at `wall_s` since 1970? RC_REFUSED, and a phrase for both
 *  sides to read: "the key 0123... is not on the --allow list". */
MUST_USE enum rc admission_check(const struct admission *admission, const struct hello *hello,
                                 uint64_t wall_s, struct fault *why);
/** Take over `next` in place of the deny list in force, if its serial is higher. RC_STALE when it
 *  is lower, or the same with other keys; `next` is emptied either way. */
MUST_USE enum rc admission_take_deny(struct admission *admission, struct deny_list *next,
                                     struct fault *why);

#endif
