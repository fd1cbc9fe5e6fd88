/* CHECK: always-on assertions for our own mistakes. Never for what a peer, a file or the user did.
 */
#ifndef GRAPEVINE_BASE_CHECK_H
#define GRAPEVINE_BASE_CHECK_H

/** Print where and what, then abort. */
void check_failed(const char *file, int line, const char *condition) __attribute__((noreturn));

/** Abort unless `cond` holds. Kept in release builds; `cond` must have no side effects. */
#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0)) check_failed(__FILE__, __LINE__, #cond);                 \
    } while (0)

#define ARRAY_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
