/* vocabulary: two open hash tables over arrays that only grow; see vocabulary.h. */
#include "replica/tokenizer/vocabulary.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <string.h>

enum { FIRST_SLOTS = 1024, FIRST_BYTES = 4096 };

void vocabulary_deinit(struct vocabulary *vocabulary)
{
    mem_free(vocabulary->tokens);
    mem_free(vocabulary->bytes);
    mem_free(vocabulary->by_bytes);
    mem_free(vocabulary->merges);
    mem_free(vocabulary->by_pair);
    *vocabulary = (struct vocabulary){0};
}

/* Grow an array of `size` bytes an entry to at least `wanted` entries. */
static bool make_room(void **array, size_t size, size_t wanted, size_t *cap)
{
    size_t wider = *cap < FIRST_SLOTS ? FIRST_SLOTS : *cap;
    void *grown;

    if (wanted <= *cap) return true;
    while (wider < wanted) {
        wider *= 2;
    }
    grown = mem_resize(*array, wider * size);
    if (grown == NULL) return false;
    memset((char *)grown + *cap * size, 0, (wider - *cap) * size);
    *array = grown;
    *cap = wider;
    return true;
}

/* FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint64_t hash_bytes(const uint8_t *bytes, size_t count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash ^ hash >> 29;
}

static uint64_t hash_pair(uint32_t left, uint32_t right)
{
    uint64_t hash = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);

    return hash ^ hash >> 32;
}

static uint32_t *empty_table(uint32_t slots)
{
    uint32_t *table = mem_raw((size_t)slots * sizeof *table);

    if (table != NULL) memset(table, 0xFF, (size_t)slots * sizeof *table);
    return table;
}

/* Where the bytes stand in the table, or where they would. */
static uint32_t slot_of(const struct vocabulary *v, const uint8_t *bytes, size_t count)
{
    uint32_t slot = (uint32_t)hash_bytes(bytes, count) & (v->slots - 1);

    for (; v->by_bytes[slot] != VOCABULARY_NONE; slot = (slot + 1) & (v->slots - 1)) {
        const struct token *token = &v->tokens[v->by_bytes[slot]];
        if (token->count == count && memcmp(v->bytes + token->at, bytes, count) == 0) break;
    }
    return slot;
}

static enum rc make_slots(struct vocabulary *v)
{
    uint32_t slots = v->slots == 0 ? FIRST_SLOTS : 2 * v->slots, *table;

    if (v->slots > 0 && v->filled < v->slots / 2) return RC_OK;
    table = empty_table(slots);
    if (table == NULL) return RC_NOMEM;
    mem_free(v->by_bytes);
    v->by_bytes = table;
    v->slots = slots;
    for (uint32_t i = 0; i < v->count; i++) {
        const struct token *token = &v->tokens[i];
        if (!token->is_there || token->is_apart) continue;
        table[slot_of(v, v->bytes + token->at, token->count)] = i;
    }
    return RC_OK;
}

enum rc vocabulary_add(struct vocabulary *v, uint32_t number, const void *bytes, size_t count,
                       bool is_apart)
{
    size_t cap = v->cap;
    uint32_t slot = 0;

    if (number >= VOCABULARY_TOKENS_MAX || count > VOCABULARY_TOKEN_BYTES) return RC_LIMIT;
    if (count == 0 || (number < v->count && v->tokens[number].is_there)) return RC_FORMAT;
    if (!make_room((void **)&v->tokens, sizeof *v->tokens, (size_t)number + 1, &cap) ||
        !make_room((void **)&v->bytes, 1, v->bytes_count + count, &v->bytes_cap)) {
        return RC_NOMEM;
    }
    v->cap = (uint32_t)cap;
    if (!is_apart) {
        if (make_slots(v) != RC_OK) return RC_NOMEM;
        slot = slot_of(v, bytes, count);
        if (v->by_bytes[slot] != VOCABULARY_NONE) return RC_FORMAT;
        v->by_bytes[slot] = number;
        v->filled++;
    }
    memcpy(v->bytes + v->bytes_count, bytes, count);
    v->tokens[number] = (struct token){v->bytes_count, (uint16_t)count, true, is_apart};
    v->bytes_count += count;
    if (number >= v->count) v->count = number + 1;
    return RC_OK;
}

uint32_t vocabulary_find(const struct vocabulary *v, const void *bytes, size_t count)
{
    return v->slots == 0 ? VOCABULARY_NONE : v->by_bytes[slot_of(v, bytes, count)];
}

const uint8_t *vocabulary_bytes(const struct vocabulary *v, uint32_t number, size_t *count)
{
    *count = number < v->count && v->tokens[number].is_there ? v->tokens[number].count : 0;
    return *count > 0 ? v->bytes + v->tokens[number].at : NULL;
}

enum rc vocabulary_merge(struct vocabulary *v, struct merge merge)
{
    size_t cap = v->merges_cap;

    CHECK(merge.left < v->count && merge.right < v->count && merge.result < v->count);
    if (v->merges_count == VOCABULARY_MERGES_MAX) return RC_LIMIT;
    if (!make_room((void **)&v->merges, sizeof merge, (size_t)v->merges_count + 1, &cap)) {
        return RC_NOMEM;
    }
    v->merges_cap = (uint32_t)cap;
    v->merges[v->merges_count++] = merge;
    return RC_OK;
}

static uint32_t pair_slot(const struct vocabulary *v, uint32_t left, uint32_t right)
{
    uint32_t slot = (uint32_t)hash_pair(left, right) & (v->pair_slots - 1);

    for (; v->by_pair[slot] != VOCABULARY_NONE; slot = (slot + 1) & (v->pair_slots - 1)) {
        const struct merge *merge = &v->merges[v->by_pair[slot]];
        if (merge->left == left && merge->right == right) break;
    }
    return slot;
}

enum rc vocabulary_complete(struct vocabulary *v, unsigned *byte)
{
    uint32_t slots = FIRST_SLOTS;

    for (*byte = 0; *byte < 256; ++*byte) {
        const uint8_t alone = (uint8_t)*byte;
        v->of_byte[alone] = vocabulary_find(v, &alone, 1);
        if (v->of_byte[alone] == VOCABULARY_NONE) return RC_FORMAT;
    }
    while (slots < 2 * v->merges_count) {
        slots *= 2;
    }
    v->by_pair = empty_table(slots);
    if (v->by_pair == NULL) return RC_NOMEM;
    v->pair_slots = slots;
    for (uint32_t i = 0; i < v->merges_count; i++) {
        uint32_t slot = pair_slot(v, v->merges[i].left, v->merges[i].right);
        if (v->by_pair[slot] != VOCABULARY_NONE) return RC_FORMAT;
        v->by_pair[slot] = i;
    }
    return RC_OK;
}

uint32_t vocabulary_rank(const struct vocabulary *v, uint32_t left, uint32_t right)
{
    return v->by_pair[pair_slot(v, left, right)];
}

static void hash_count(struct hash *hash, uint32_t count)
{
    uint8_t bytes[4];

    store_le32(bytes, count);
    hash_update(hash, bytes, sizeof bytes);
}

void vocabulary_hash(const struct vocabulary *v, struct hash *hash)
{
    hash_count(hash, v->count);
    for (uint32_t i = 0; i < v->count; i++) {
        const struct token *token = &v->tokens[i];
        hash_count(hash, token->is_there ? 2U * token->count + token->is_apart : 0);
        if (token->is_there) hash_update(hash, v->bytes + token->at, token->count);
    }
    hash_count(hash, v->merges_count);
    for (uint32_t i = 0; i < v->merges_count; i++) {
        hash_count(hash, v->merges[i].left);
        hash_count(hash, v->merges[i].right);
        hash_count(hash, v->merges[i].result);
    }
}
