/*
 * Structs to msgpack maps, packed by msgpack-c straight into the caller's buffer: the library's
 * packer needs no heap when it is given a place to write to. Runs on any thread.
 */
#include "gossip/wire/fields.h"

#include "base/bytes.h"
#include "base/check.h"
#include "gossip/wire/messages.h"

#include <math.h>
#include <msgpack/pack.h>

enum { TEXT_MAX = ERROR_TEXT_MAX }; /* the longest char array of any table */

/* Where the packer writes; once something did not fit nothing more is written. */
struct sink {
    uint8_t *out;
    size_t cap, count;
    bool is_full;
};

static int on_packed(void *context, const char *bytes, size_t count)
{
    struct sink *sink = context;

    if (sink->is_full || count > sink->cap - sink->count) {
        sink->is_full = true;
        return -1;
    }
    if (count > 0) memcpy(sink->out + sink->count, bytes, count);
    sink->count += count;
    return 0;
}

static void pack_bytes(msgpack_packer *packer, const void *bytes, size_t count)
{
    CHECK(bytes != NULL || count == 0);
    (void)msgpack_pack_bin(packer, count); /* failure is remembered by the sink */
    if (count > 0) (void)msgpack_pack_bin_body(packer, bytes, count);
}

static void pack_text(msgpack_packer *packer, const char *text, size_t cap)
{
    char clean[TEXT_MAX];
    size_t count = strnlen(text, cap);

    CHECK(cap <= sizeof clean && count < cap);
    for (size_t i = 0; i < count; i++) {
        clean[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    }
    (void)msgpack_pack_str(packer, count);
    if (count > 0) (void)msgpack_pack_str_body(packer, clean, count);
}

static uint64_t load_number(const struct field *field, const uint8_t *at)
{
    uint64_t value = 0;
    uint32_t word;
    uint16_t half;

    switch (field->bytes) {
    case 1:
        value = *at;
        break;
    case 2:
        memcpy(&half, at, sizeof half);
        value = half;
        break;
    case 4:
        memcpy(&word, at, sizeof word);
        value = word;
        break;
    default:
        CHECK(field->bytes == 8);
        memcpy(&value, at, sizeof value);
    }
    return value;
}

static void pack_uint(msgpack_packer *packer, const struct field *field, const uint8_t *at)
{
    uint64_t value = load_number(field, at);

    CHECK(value >= field->low && value <= field->high);
    (void)msgpack_pack_uint64(packer, value);
}

static void pack_float(msgpack_packer *packer, const struct field *field, const uint8_t *at)
{
    float value;

    memcpy(&value, at, sizeof value);
    CHECK(isfinite(value) && value >= field->least && value <= field->most);
    CHECK(!field->is_above_least || value > field->least);
    (void)msgpack_pack_float(packer, value);
}

static void pack_round(msgpack_packer *packer, const struct round_key *key)
{
    uint8_t packed[PEER_ID_BYTES + BOOT_ID_BYTES + 8];

    memcpy(packed, key->initiator.bytes, PEER_ID_BYTES);
    memcpy(packed + PEER_ID_BYTES, key->boot.bytes, BOOT_ID_BYTES);
    store_le64(packed + PEER_ID_BYTES + BOOT_ID_BYTES, key->counter);
    pack_bytes(packer, packed, sizeof packed);
}

static void pack_records(msgpack_packer *packer, const struct record_ref *records, uint32_t count)
{
    (void)msgpack_pack_array(packer, count);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(records[i].bytes_count > 0 && records[i].bytes_count <= SIGNED_RECORD_BYTES_MAX);
        pack_bytes(packer, records[i].bytes, records[i].bytes_count);
    }
}

static void pack_members(msgpack_packer *packer, const struct member_ref *members, uint32_t count)
{
    (void)msgpack_pack_bin(packer, (size_t)count * (PEER_ID_BYTES + BOOT_ID_BYTES));
    for (uint32_t i = 0; i < count; i++) {
        (void)msgpack_pack_bin_body(packer, members[i].id.bytes, PEER_ID_BYTES);
        (void)msgpack_pack_bin_body(packer, members[i].boot.bytes, BOOT_ID_BYTES);
    }
}

static void pack_sections(msgpack_packer *packer, const uint8_t *sections, const uint64_t *values,
                          uint32_t count)
{
    (void)msgpack_pack_bin(packer, (size_t)count * 9);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t packed[9];

        packed[0] = sections[i];
        store_le64(packed + 1, values[i]);
        (void)msgpack_pack_bin_body(packer, packed, sizeof packed);
    }
}

static void pack_list(msgpack_packer *packer, const struct field *field, const uint8_t *base,
                      uint32_t count)
{
    const uint8_t *at = base + field->at;

    CHECK(count <= field->high);
    switch (field->kind) {
    case FIELD_RECORDS:
        pack_records(packer, (const struct record_ref *)(const void *)at, count);
        break;
    case FIELD_MEMBERS:
        pack_members(packer, (const struct member_ref *)(const void *)at, count);
        break;
    case FIELD_SECTIONS:
        pack_sections(packer, at, (const uint64_t *)(const void *)(base + field->second_at), count);
        break;
    default:
        CHECK(field->kind == FIELD_TEXTS);
        (void)msgpack_pack_array(packer, count);
        for (uint32_t i = 0; i < count; i++) {
            pack_text(packer, (const char *)at + (size_t)i * field->bytes, field->bytes);
        }
    }
}

static void pack_borrowed(msgpack_packer *packer, const struct field *field, const uint8_t *at,
                          uint32_t count)
{
    const void *bytes;

    memcpy(&bytes, at, sizeof bytes);
    CHECK(count <= field->bytes && (bytes != NULL || count == 0));
    if (field->kind == FIELD_BLOB) {
        CHECK(count % field->unit == 0);
        pack_bytes(packer, bytes, count);
        return;
    }
    (void)msgpack_pack_str(packer, count);
    if (count > 0) (void)msgpack_pack_str_body(packer, bytes, count);
}

static void pack_field(msgpack_packer *packer, const struct field *field, const uint8_t *base)
{
    const uint8_t *at = base + field->at;
    uint32_t count;

    memcpy(&count, base + field->count_at, sizeof count); /* means something for lists only */
    switch (field->kind) {
    case FIELD_UINT:
        pack_uint(packer, field, at);
        break;
    case FIELD_BOOL:
        (void)(*(const bool *)at ? msgpack_pack_true(packer) : msgpack_pack_false(packer));
        break;
    case FIELD_FLOAT:
        pack_float(packer, field, at);
        break;
    case FIELD_FIXED:
        pack_bytes(packer, at, field->bytes);
        break;
    case FIELD_TEXT:
        pack_text(packer, (const char *)at, field->bytes);
        break;
    case FIELD_ROUND:
        pack_round(packer, (const struct round_key *)(const void *)at);
        break;
    case FIELD_BLOB:
    case FIELD_STRING:
        pack_borrowed(packer, field, at, count);
        break;
    case FIELD_RECORDS:
    case FIELD_MEMBERS:
    case FIELD_SECTIONS:
    case FIELD_TEXTS:
        pack_list(packer, field, base, count);
        break;
    }
}

static bool is_zero(const uint8_t *bytes, uint32_t count)
{
    while (count > 0 && bytes[count - 1] == 0) {
        count--;
    }
    return count == 0;
}

/* Optional and empty: not written at all. */
static bool is_left_out(const struct field *field, const uint8_t *base)
{
    uint32_t count;

    if (!field->is_optional) return false;
    if (field->kind == FIELD_UINT) return load_number(field, base + field->at) == 0;
    if (field->kind == FIELD_FIXED) return is_zero(base + field->at, field->bytes);
    if (field->kind != FIELD_BLOB) return false;
    memcpy(&count, base + field->count_at, sizeof count);
    return count == 0;
}

enum rc fields_encode(const struct field *fields, size_t fields_count, const void *from,
                      uint8_t *out, size_t cap, size_t *count)
{
    struct sink sink = {.out = out, .cap = cap};
    msgpack_packer packer;
    size_t pairs = 0;

    CHECK(fields_count <= FIELD_KEY_MAX + 1);
    for (size_t i = 0; i < fields_count; i++) {
        pairs += !is_left_out(&fields[i], from);
    }
    msgpack_packer_init(&packer, &sink, on_packed);
    (void)msgpack_pack_map(&packer, pairs);
    for (size_t i = 0; i < fields_count; i++) {
        CHECK(fields[i].key <= FIELD_KEY_MAX && (i == 0 || fields[i].key > fields[i - 1].key));
        if (is_left_out(&fields[i], from)) continue;
        (void)msgpack_pack_uint8(&packer, fields[i].key);
        pack_field(&packer, &fields[i], from);
    }
    if (sink.is_full) return RC_LIMIT;
    *count = sink.count;
    return RC_OK;
}
