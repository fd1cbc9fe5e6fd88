/*
 * merger: see merger.h. A word is a list of tokens, linked over the places of its bytes. The heap
 * holds (rank, place) as one number; an entry whose two tokens have become others meanwhile is
 * known by them and dropped.
 */
#include "replica/tokenizer/merger.h"

#include "base/check.h"
#include "base/mem.h"

#include <string.h>

enum { CACHE_ENTRIES = 1 << 15, CACHED_BYTES = 30, CACHED_TOKENS = 16, ROOM_LEAST = 256 };

/* A word seen before. Words of one place push each other out. */
struct cached {
    uint8_t bytes_count, tokens_count; /* 0: empty */
    uint8_t bytes[CACHED_BYTES];
    uint32_t tokens[CACHED_TOKENS];
};

struct merger {
    const struct vocabulary *vocabulary;
    bool whole_first;
    struct cached *cache;
    size_t room;                    /* bytes of a word that there is room for */
    uint32_t *tokens, *next, *prev; /* [room] */
    uint64_t *heap;                 /* [3 * room]: rank in the upper half, place in the lower */
    size_t heap_count;
};

struct merger *merger_create(const struct vocabulary *vocabulary, bool whole_first)
{
    struct merger *made = mem_alloc(sizeof *made);

    if (made == NULL) return NULL;
    made->vocabulary = vocabulary;
    made->whole_first = whole_first;
    made->cache = mem_array(CACHE_ENTRIES, sizeof *made->cache);
    if (made->cache != NULL) return made;
    mem_free(made);
    return NULL;
}

static void drop_room(struct merger *m)
{
    mem_free(m->tokens);
    mem_free(m->next);
    mem_free(m->prev);
    mem_free(m->heap);
    m->tokens = m->next = m->prev = NULL;
    m->heap = NULL;
    m->room = 0;
}

void merger_destroy(struct merger *merger)
{
    if (merger == NULL) return;
    drop_room(merger);
    mem_free(merger->cache);
    mem_free(merger);
}

static bool take_room(struct merger *m, size_t count)
{
    size_t room = ROOM_LEAST;

    if (count <= m->room) return true;
    while (room < count) {
        room *= 2;
    }
    drop_room(m);
    m->tokens = mem_raw(room * sizeof *m->tokens);
    m->next = mem_raw(room * sizeof *m->next);
    m->prev = mem_raw(room * sizeof *m->prev);
    m->heap = mem_raw(3 * room * sizeof *m->heap);
    if (m->tokens == NULL || m->next == NULL || m->prev == NULL || m->heap == NULL) {
        drop_room(m);
        return false;
    }
    m->room = room;
    return true;
}

static void push(struct merger *m, uint64_t entry)
{
    size_t at = m->heap_count++;

    CHECK(m->heap_count <= 3 * m->room);
    for (; at > 0 && m->heap[(at - 1) / 2] > entry; at = (at - 1) / 2) {
        m->heap[at] = m->heap[(at - 1) / 2];
    }
    m->heap[at] = entry;
}

static uint64_t pop(struct merger *m)
{
    const uint64_t least = m->heap[0], last = m->heap[--m->heap_count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= m->heap_count) break;
        if (child + 1 < m->heap_count && m->heap[child + 1] < m->heap[child]) child++;
        if (m->heap[child] >= last) break;
        m->heap[at] = m->heap[child];
        at = child;
    }
    m->heap[at] = last;
    return least;
}

/* The pair that begins at `place` may be joined. */
static void offer(struct merger *m, uint32_t place)
{
    uint32_t rank;

    if (m->next[place] == VOCABULARY_NONE) return;
    rank = vocabulary_rank(m->vocabulary, m->tokens[place], m->tokens[m->next[place]]);
    if (rank != VOCABULARY_NONE) push(m, (uint64_t)rank << 32 | place);
}

static void join(struct merger *m, uint32_t rank, uint32_t place)
{
    const struct merge *merge = &m->vocabulary->merges[rank];
    uint32_t next = m->next[place];

    if (m->tokens[place] != merge->left || next == VOCABULARY_NONE ||
        m->tokens[next] != merge->right) {
        return; /* one of them has become another */
    }
    m->tokens[place] = merge->result;
    m->tokens[next] = VOCABULARY_NONE;
    m->next[place] = m->next[next];
    if (m->next[place] != VOCABULARY_NONE) m->prev[m->next[place]] = place;
    offer(m, place);
    if (m->prev[place] != VOCABULARY_NONE) offer(m, m->prev[place]);
}

/* The list is made dense at the end: tokens[] then begins with the word's. */
static size_t merge_all(struct merger *m, const uint8_t *word, size_t count)
{
    size_t filled = 0;

    m->heap_count = 0;
    for (size_t i = 0; i < count; i++) {
        m->tokens[i] = m->vocabulary->of_byte[word[i]];
        m->prev[i] = i == 0 ? VOCABULARY_NONE : (uint32_t)i - 1;
        m->next[i] = i + 1 == count ? VOCABULARY_NONE : (uint32_t)i + 1;
    }
    for (size_t i = 0; i < count; i++) {
        offer(m, (uint32_t)i);
    }
    while (m->heap_count > 0) {
        const uint64_t entry = pop(m);
        join(m, (uint32_t)(entry >> 32), (uint32_t)entry);
    }
    for (size_t i = 0; i < count; i++) {
        if (m->tokens[i] != VOCABULARY_NONE) m->tokens[filled++] = m->tokens[i];
    }
    return filled;
}

static struct cached *entry_of(struct merger *m, const uint8_t *word, size_t count)
{
    uint64_t hash = count;

    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ word[i]) * UINT64_C(0x100000001b3);
    }
    return &m->cache[(hash ^ hash >> 23) % CACHE_ENTRIES];
}

const uint32_t *merger_word(struct merger *m, const uint8_t *word, size_t count, size_t *tokens)
{
    struct cached *entry = count <= CACHED_BYTES ? entry_of(m, word, count) : NULL;
    uint32_t whole;

    CHECK(count > 0 && count <= MERGER_WORD_BYTES);
    if (entry != NULL && entry->bytes_count == count && memcmp(entry->bytes, word, count) == 0) {
        *tokens = entry->tokens_count;
        return entry->tokens;
    }
    if (!take_room(m, count)) return NULL;
    whole = m->whole_first ? vocabulary_find(m->vocabulary, word, count) : VOCABULARY_NONE;
    if (whole != VOCABULARY_NONE) {
        m->tokens[0] = whole;
        *tokens = 1;
    } else {
        *tokens = merge_all(m, word, count);
    }
    if (entry == NULL || *tokens > CACHED_TOKENS) return m->tokens;
    entry->bytes_count = (uint8_t)count;
    entry->tokens_count = (uint8_t)*tokens;
    memcpy(entry->bytes, word, count);
    memcpy(entry->tokens, m->tokens, *tokens * sizeof *m->tokens);
    return entry->tokens;
}
