/*
 * text: a string that grows while it is written, for pages and tables. Running out of memory is
 * remembered, not reported at each call: ask text_is_whole() once at the end.
 */
#ifndef GRAPEVINE_TESTNET_TEXT_H
#define GRAPEVINE_TESTNET_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text {
    char *bytes; /* NUL-terminated once something was added */
    size_t count, room;
    bool is_short; /* an addition was lost */
};

#define TEXT_EMPTY                                                                                 \
    (struct text)                                                                                  \
    {                                                                                              \
        NULL, 0, 0, false                                                                          \
    }

void text_deinit(struct text *text);
void text_clear(struct text *text); /* keeps the memory */
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** `raw` with the characters that mean something in HTML and XML replaced. NULL adds nothing. */
void text_add_escaped(struct text *text, const char *raw);
bool text_is_whole(const struct text *text);

#endif
