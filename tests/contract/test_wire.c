/*
 * The documents of the wire against the code: every message, key, type and limit in the tables of
 * gossip/WIRE.md is what the tables of messages.c and the limits in the headers say, and every
 * code has a meaning there; hellos and records have the keys of their tables. So a change of the
 * wire that is not described fails here.
 */
#include "tests/check.h"

#include "tests/golden.h"
#include "tests/signed.h"

#include "base/bytes.h"
#include "base/check.h"
#include "gossip/secure/attach.h"
#include "gossip/wire/fields.h"
#include "gossip/wire/messages.h"
#include "peer/link/link.h"

#include <float.h>
#include <msgpack.h>
#include <sodium.h>

enum { CELLS_MAX = 8, ITEM_MAX = 1024, NUMBERS_MAX = 8 };

static const char document[] = "gossip/WIRE.md";
static char *text;

static int read_document(void **state)
{
    size_t count;

    (void)state;
    text = golden_read(document, &count);
    return 0;
}

static int free_document(void **state)
{
    (void)state;
    free(text);
    return 0;
}

/* One row of a table, cut into its cells; false: no row in this line. */
static bool row_read(const char *line, char cells[CELLS_MAX][ITEM_MAX], size_t *count)
{
    *count = 0;
    if (line[0] != '|') return false;
    for (const char *at = line + 1; *at != '\n' && *at != '\0' && *count < CELLS_MAX;) {
        const char *end = strpbrk(at, "|\n");
        size_t bytes;

        assert_non_null(end);
        while (*at == ' ') {
            at++;
        }
        bytes = end > at ? (size_t)(end - at) : 0;
        while (bytes > 0 && at[bytes - 1] == ' ') {
            bytes--;
        }
        if (*end == '\n') break;
        assert_true(bytes < ITEM_MAX);
        memcpy(cells[*count], at, bytes);
        cells[(*count)++][bytes] = '\0';
        at = end + 1;
    }
    return *count > 0;
}

#define FOR_EACH_LINE(line)                                                                        \
    for (const char *line = text; line != NULL;                                                    \
         line = strchr(line, '\n') == NULL ? NULL : strchr(line, '\n') + 1)

/* "4, 5" */
static size_t numbers_read(const char *cell, unsigned numbers[NUMBERS_MAX])
{
    size_t count = 0;
    const char *at = cell;

    while (*at >= '0' && *at <= '9' && count < NUMBERS_MAX) {
        char *end;

        numbers[count++] = (unsigned)strtoul(at, &end, 10);
        at = end + strspn(end, ", ");
    }
    return *at == '\0' ? count : 0;
}

/* Of "REKEY, REKEY_ACK" the one at `index`. */
static bool name_is(const char *cell, size_t index, const char *name)
{
    size_t bytes;

    while (index-- > 0 && strchr(cell, ',') != NULL) {
        cell = strchr(cell, ',') + 2;
    }
    bytes = strcspn(cell, ",");
    return bytes == strlen(name) && memcmp(cell, name, bytes) == 0;
}

/* ---- a field in words ---- */

static void number_words(const struct field *field, char words[64])
{
    uint64_t most = UINT64_MAX >> (64 - 8 * field->bytes);

    if (field->low == field->high) {
        snprintf(words, 64, "%llu", (unsigned long long)field->low);
    } else if (field->low == 0 && field->high == most) {
        snprintf(words, 64, "u%u", 8 * field->bytes);
    } else if (field->low == 1 && field->high == most) {
        snprintf(words, 64, "u%u, not 0", 8 * field->bytes);
    } else if (field->low == 0 && field->high == STREAM_MAX) {
        snprintf(words, 64, "below 2^48");
    } else {
        snprintf(words, 64, "%llu..%llu", (unsigned long long)field->low,
                 (unsigned long long)field->high);
    }
}

static void float_words(const struct field *field, char words[64])
{
    if (field->most >= FLT_MAX) {
        snprintf(words, 64, "f32 %s %g", field->is_above_least ? ">" : ">=", (double)field->least);
    } else {
        snprintf(words, 64, "f32 in %c%g, %g]", field->is_above_least ? '(' : '[',
                 (double)field->least, (double)field->most);
    }
}

static void bytes_words(const struct field *field, char words[64])
{
    if (field->kind == FIELD_BLOB && field->unit > 1) {
        snprintf(words, 64, "bin(%u) by %u", field->bytes, field->unit);
    } else if (field->kind == FIELD_BLOB) {
        snprintf(words, 64, "bin(%u)", field->bytes);
    } else if (field->bytes == sizeof(struct peer_id)) {
        snprintf(words, 64, "id");
    } else {
        snprintf(words, 64, "%u bytes", field->bytes);
    }
}

/* The type of this field, as the table has it. */
static void field_words(const struct field *field, char words[64])
{
    switch (field->kind) {
    case FIELD_UINT:
        number_words(field, words);
        break;
    case FIELD_BOOL:
        snprintf(words, 64, "bool");
        break;
    case FIELD_FLOAT:
        float_words(field, words);
        break;
    case FIELD_FIXED:
    case FIELD_BLOB:
        bytes_words(field, words);
        break;
    case FIELD_TEXT:
        snprintf(words, 64, "text(%u)", field->bytes - 1);
        break;
    case FIELD_STRING:
        snprintf(words, 64, "text(%u)", field->bytes);
        break;
    case FIELD_ROUND:
        snprintf(words, 64, "round");
        break;
    case FIELD_RECORDS:
        snprintf(words, 64, "records(%u)", (unsigned)field->high);
        break;
    case FIELD_MEMBERS:
        snprintf(words, 64, "members(%u)", (unsigned)field->high);
        break;
    case FIELD_SECTIONS:
        snprintf(words, 64, "sections(%u)", (unsigned)field->high);
        break;
    case FIELD_TEXTS:
        fail_msg("no message has one");
    }
    if (field->is_optional) strcat(words, ", or none");
}

/* ---- the table of messages ---- */

enum { COLUMNS = 5, NUMBER = 0, NAME, KEY, TYPE, MEANING };

/* What was read of the table so far. */
struct seen {
    unsigned numbers[NUMBERS_MAX]; /* of the message that the row is of */
    size_t numbers_count;
    uint64_t keys[MESSAGE_DATA + 1]; /* a bit each */
    bool has_row[MESSAGE_DATA + 1];
    int wrong;
};

static const struct field *field_find(unsigned type, unsigned key)
{
    size_t count;
    const struct field *fields = message_fields((enum message_type)type, &count);

    for (size_t i = 0; i < count; i++) {
        if (fields[i].key == key) return &fields[i];
    }
    return NULL;
}

static void complain(struct seen *seen, unsigned type, const char *key, const char *what)
{
    fprintf(stderr, "%s: %s, key %s: %s\n", document, message_type_name((enum message_type)type),
            key[0] == '\0' ? "none" : key, what);
    seen->wrong++;
}

/* Which message does a row begin? */
static void names_read(struct seen *seen, char cells[CELLS_MAX][ITEM_MAX])
{
    unsigned numbers[NUMBERS_MAX];
    size_t count = numbers_read(cells[NUMBER], numbers);

    seen->numbers_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (numbers[i] > MESSAGE_DATA || seen->has_row[numbers[i]] ||
            !name_is(cells[NAME], i, message_type_name((enum message_type)numbers[i]))) {
            complain(seen, numbers[i], cells[NAME], "another name, or a second row");
            continue;
        }
        seen->has_row[numbers[i]] = true;
        seen->numbers[seen->numbers_count++] = numbers[i];
    }
}

static void key_check(struct seen *seen, unsigned type, char cells[CELLS_MAX][ITEM_MAX])
{
    unsigned key = (unsigned)strtoul(cells[KEY], NULL, 10);
    const struct field *field = field_find(type, key);
    char words[64];

    if (field == NULL || (seen->keys[type] >> key & 1) != 0) {
        complain(seen, type, cells[KEY], "no such key, or twice");
        return;
    }
    seen->keys[type] |= UINT64_C(1) << key;
    field_words(field, words);
    if (strcmp(words, cells[TYPE]) != 0) complain(seen, type, cells[KEY], words);
    if (cells[MEANING][0] == '\0') complain(seen, type, cells[KEY], "no meaning");
}

static void each_message_is_in_the_table_with_its_keys_types_and_limits(void **state)
{
    struct seen seen = {.wrong = 0};

    (void)state;
    FOR_EACH_LINE(line)
    {
        char cells[CELLS_MAX][ITEM_MAX];
        size_t count;

        if (!row_read(line, cells, &count) || count != COLUMNS) continue;
        if (strspn(cells[NAME], "ABCDEFGHIJKLMNOPQRSTUVWXYZ_, ") != strlen(cells[NAME])) continue;
        if (cells[NAME][0] != '\0') names_read(&seen, cells);
        for (size_t i = 0; i < seen.numbers_count && cells[KEY][0] != '\0'; i++) {
            key_check(&seen, seen.numbers[i], cells);
        }
    }
    for (unsigned type = 0; type <= MESSAGE_DATA; type++) {
        bool is_known = strcmp(message_type_name((enum message_type)type), "unknown") != 0;
        size_t count;
        const struct field *fields = message_fields((enum message_type)type, &count);

        if (seen.has_row[type] != is_known) complain(&seen, type, "", "has no row");
        for (size_t i = 0; i < count; i++) {
            char words[64], key[8];

            if ((seen.keys[type] >> fields[i].key & 1) != 0) continue;
            snprintf(key, sizeof key, "%u", fields[i].key);
            field_words(&fields[i], words);
            complain(&seen, type, key, words);
        }
    }
    assert_int_equal(seen.wrong, 0);
}

/* ---- codes ---- */

static bool code_has_meaning(const char *name, unsigned code)
{
    char names[ITEM_MAX] = "";

    FOR_EACH_LINE(line)
    {
        char cells[CELLS_MAX][ITEM_MAX];
        unsigned numbers[NUMBERS_MAX];
        size_t count, numbers_count;

        if (!row_read(line, cells, &count) || count != 3) continue;
        if (cells[0][0] != '\0') memcpy(names, cells[0], sizeof names);
        numbers_count = numbers_read(cells[1], numbers);
        for (size_t i = 0; i < numbers_count; i++) {
            const char *found = strstr(names, name);
            size_t bytes = strlen(name);

            if (numbers[i] != code || found == NULL || cells[2][0] == '\0') continue;
            if ((found == names || found[-1] == ' ') &&
                (found[bytes] == ',' || found[bytes] == '\0')) {
                return true;
            }
        }
    }
    return false;
}

static void each_code_has_a_meaning(void **state)
{
    static const struct {
        enum message_type type;
        unsigned key;
    } coded[] = {{MESSAGE_ERROR, 0},       {MESSAGE_GOAWAY, 0},     {MESSAGE_DIALBACK, 1},
                 {MESSAGE_RELAY_LEASE, 0}, {MESSAGE_RELAY_STOP, 1}, {MESSAGE_REJECT, 1},
                 {MESSAGE_ABORT, 1},       {MESSAGE_OUTCOME, 1},    {MESSAGE_APPLIED, 1},
                 {MESSAGE_STATE_DENY, 0},  {MESSAGE_CANCEL, 1},     {MESSAGE_PREDICTIONS, 0},
                 {MESSAGE_REVEAL, 0}};
    int wrong = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(coded); i++) {
        const char *name = message_type_name(coded[i].type);
        size_t count;
        const struct field *fields = message_fields(coded[i].type, &count);

        for (size_t k = 0; k < count; k++) {
            if (fields[k].key != coded[i].key) continue;
            for (uint64_t code = fields[k].low; code <= fields[k].high; code++) {
                if (code_has_meaning(name, (unsigned)code)) continue;
                fprintf(stderr, "%s: %s: no meaning of code %u\n", document, name, (unsigned)code);
                wrong++;
            }
        }
    }
    assert_int_equal(wrong, 0);
}

/* ---- what is signed ---- */

/* Keys of the map, a bit each; false: it is none. */
static bool keys_read(const uint8_t *map, size_t count, uint64_t *keys)
{
    msgpack_unpacked unpacked;
    bool is_map;

    *keys = 0;
    msgpack_unpacked_init(&unpacked);
    is_map =
        msgpack_unpack_next(&unpacked, (const char *)map, count, NULL) == MSGPACK_UNPACK_SUCCESS &&
        unpacked.data.type == MSGPACK_OBJECT_MAP;
    for (uint32_t i = 0; is_map && i < unpacked.data.via.map.size; i++) {
        *keys |= UINT64_C(1) << unpacked.data.via.map.ptr[i].key.via.u64;
    }
    msgpack_unpacked_destroy(&unpacked);
    return is_map;
}

/* Keys of the first table behind `mark`. */
static uint64_t keys_documented(const char *mark)
{
    const char *from = strstr(text, mark);
    bool has_begun = false;
    uint64_t keys = 0;

    assert_non_null(from);
    for (const char *line = from; line != NULL; line = strchr(line, '\n') + 1) {
        char cells[CELLS_MAX][ITEM_MAX];
        unsigned numbers[NUMBERS_MAX];
        size_t count;

        if (!row_read(line, cells, &count)) {
            if (has_begun) break;
            continue;
        }
        has_begun = true;
        if (count == 3 && numbers_read(cells[0], numbers) == 1) keys |= UINT64_C(1) << numbers[0];
    }
    return keys;
}

/* ---- the version ---- */

/* Offsets are our own affair; all else decides which bytes are understood. */
static void field_absorb(crypto_generichash_state *hash, const struct field *field)
{
    char row[160];
    int count = snprintf(row, sizeof row, "%u %d %d %u %u %d %a %a %llu %llu\n", field->key,
                         field->is_above_least, field->is_optional, field->bytes, field->unit,
                         (int)field->kind, (double)field->least, (double)field->most,
                         (unsigned long long)field->low, (unsigned long long)field->high);

    assert_true(count > 0 && (size_t)count < sizeof row);
    assert_int_equal(crypto_generichash_update(hash, (const uint8_t *)row, (unsigned)count), 0);
}

/* Builds of before and after a change of the wire must not link: what one of them says the other
 * would refuse, or misread, without a word to anybody. */
static void a_change_of_the_wire_raises_its_version(void **state)
{
    static const struct {
        int version;
        const char *digest;
    } now = {8, "3b776071f56d60cbfb9ce85ae47d6a2a"};
    crypto_generichash_state hash;
    uint8_t digest[16];
    char hex[2 * sizeof digest + 1];

    (void)state;
    assert_int_equal(crypto_generichash_init(&hash, NULL, 0, sizeof digest), 0);
    for (unsigned type = 0; type <= UINT8_MAX; type++) {
        size_t count;
        const struct field *fields = message_fields((enum message_type)type, &count);
        char head[64];

        if (fields == NULL && strcmp(message_type_name(type), "unknown") == 0) continue;
        snprintf(head, sizeof head, "%u %s\n", type, message_type_name(type));
        crypto_generichash_update(&hash, (const uint8_t *)head, strlen(head));
        for (size_t k = 0; k < count; k++) {
            field_absorb(&hash, &fields[k]);
        }
    }
    assert_int_equal(crypto_generichash_final(&hash, digest, sizeof digest), 0);
    sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
    if (now.version == WIRE_VERSION && strcmp(hex, now.digest) == 0) return;
    fail_msg("the tables of gossip/wire/messages.c are not those of version %d: if the wire has "
             "changed since main, raise WIRE_VERSION in gossip/wire/limits.h by one, and write "
             "here {%d, \"%s\"}",
             now.version, now.version + 1, hex);
}

static void hellos_and_records_have_the_keys_of_their_tables(void **state)
{
    static const struct digest run_id = {.bytes = {1}};
    static const uint8_t seed[SECRET_BYTES] = {2}, key[PUBLIC_KEY_BYTES] = {3};
    struct hello hello = {.certificate_bytes = 1};
    struct member_record record = {.incarnation = 1, .site = "a"};
    struct identity identity;
    uint8_t bytes[HELLO_BYTES_MAX];
    uint64_t keys;
    size_t count;

    (void)state;
    assert_int_equal(secure_start(), RC_OK);
    identity_from_seed(seed, &identity);
    memcpy(hello.public_key, identity.public_key, sizeof hello.public_key);
    memcpy(record.public_key, identity.public_key, sizeof record.public_key);
    assert_int_equal(hello_encode(&hello, &identity, run_id, key, bytes, sizeof bytes, &count),
                     RC_OK);
    assert_true(keys_read(bytes, count, &keys));
    assert_int_equal(keys, keys_documented("**The hello**"));
    assert_int_equal(record_sign(&record, &identity, run_id, bytes, sizeof bytes, &count), RC_OK);
    assert_true(keys_read(bytes + SIGNATURE_BYTES, count - SIGNATURE_BYTES, &keys));
    assert_int_equal(keys, keys_documented("**A member record**"));
}

/* ---- limits and deadlines ---- */

struct number {
    const char *name;
    uint64_t value;
};

/* A row: the constant as it is called, and its value. */
#define NUMBER(constant)  #constant, (uint64_t)(constant)
#define SECONDS(constant) #constant, (uint64_t)(constant) / NS_PER_S

static void limits_and_deadlines_are_those_of_the_headers(void **state)
{
    static const struct number numbers[] = {
        {NUMBER(WIRE_MAJOR)},
        {NUMBER(WIRE_VERSION)},
        {NUMBER(HELLO_BYTES_MAX)},
        {NUMBER(HANDSHAKE_BYTES_MAX)},
        {NUMBER(CERTIFICATE_BYTES_MAX)},
        {NUMBER(CONTROL_BYTES_MAX)},
        {NUMBER(BULK_BYTES_MAX)},
        {NUMBER(SCAN_DEPTH_MAX)},
        {NUMBER(SCAN_OBJECTS_MAX)},
        {NUMBER(FIELD_KEY_MAX)},
        {NUMBER(SIGNED_RECORD_BYTES_MAX)},
        {NUMBER(RECORD_ADDRESSES_MAX)},
        {NUMBER(SYNC_BUCKETS)},
        {NUMBER(GROUP_MEMBERS_MAX)},
        {NUMBER(MANIFEST_HASHES_MAX)},
        {NUMBER(MEASURED_BYTES_MAX)},
        {NUMBER(STATE_SECTIONS_MAX)},
        {NUMBER(CHUNK_VALUES)},
        {NUMBER(CHUNKS_MAX)},
        {NUMBER(BULK_CONNECTIONS_MAX)},
        {NUMBER(MEMBERS_MAX)},
        {NUMBER(LINKS_MAX)},
        {NUMBER(ATTACH_WINDOW)},
        {NUMBER(LINK_REKEY_RECORDS)},
        {SECONDS(LINK_GATE_NS)},
        {SECONDS(LINK_HANDSHAKE_NS)},
        {SECONDS(LINK_DUEL_NS)},
        {SECONDS(LINK_REKEY_NS)},
    };
    int wrong = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++) {
        char name[80];
        int found = 0;

        snprintf(name, sizeof name, "`%s`", numbers[i].name);
        FOR_EACH_LINE(line)
        {
            char cells[CELLS_MAX][ITEM_MAX];
            size_t count;

            if (!row_read(line, cells, &count) || count != 3 || strcmp(cells[0], name) != 0) {
                continue;
            }
            found++;
            if (strtoull(cells[1], NULL, 10) == numbers[i].value) continue;
            fprintf(stderr, "%s: %s is %llu, not %s\n", document, name,
                    (unsigned long long)numbers[i].value, cells[1]);
            wrong++;
        }
        if (found == 1) continue;
        fprintf(stderr, "%s: %s (%llu) has %d rows\n", document, name,
                (unsigned long long)numbers[i].value, found);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_message_is_in_the_table_with_its_keys_types_and_limits),
        cmocka_unit_test(each_code_has_a_meaning),
        cmocka_unit_test(a_change_of_the_wire_raises_its_version),
        cmocka_unit_test(hellos_and_records_have_the_keys_of_their_tables),
        cmocka_unit_test(limits_and_deadlines_are_those_of_the_headers),
    };

    return cmocka_run_group_tests(tests, read_document, free_document);
}
