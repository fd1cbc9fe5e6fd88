/*
 * Every message type: round trips over random messages, cuts at each byte, values out of range,
 * keys missing, twice and unknown; msgpack-c's decoder as a second opinion; and the dumps in
 * gossip/WIRE.md, which must be what we send.
 */
#include "tests/check.h"

#include "tests/golden.h"
#include "tests/unit/gossip/message_examples.h"

#include "gossip/wire/scan.h"

#include <msgpack.h>

#define FOR_EACH_TYPE(i) for (size_t i = 0; i < ARRAY_COUNT(example_types); i++)

/* A message and its bytes. */
struct wired {
    struct message message;
    uint8_t bytes[CONTROL_BYTES_MAX];
    size_t count;
};

static struct example_bytes borrowed;

static void wire(struct wired *wired, enum message_type type, uint64_t seed)
{
    struct source source = {.bytes = &borrowed, .is_random = seed != 0, .next = 1};

    rng_init(&source.rng, seed, type);
    example_make(&source, type, &wired->message);
    assert_int_equal(
        message_encode(&wired->message, wired->bytes, sizeof wired->bytes, &wired->count), RC_OK);
}

static enum rc unwire(const struct wired *wired, struct message *message)
{
    return message_decode(wired->message.type, wired->bytes + INNER_HEADER_BYTES,
                          wired->count - INNER_HEADER_BYTES, message);
}

/* Equal content behind the pointer; afterwards the pointers are equal too. */
static bool same_bytes(const uint8_t **a, const uint8_t *b, size_t count)
{
    bool is_same = memcmp(*a, b, count) == 0;

    *a = b;
    return is_same;
}

static bool same_records(struct record_ref *a, const struct record_ref *b, uint32_t count)
{
    bool is_same = true;

    for (uint32_t i = 0; i < count; i++) {
        is_same = is_same && a[i].bytes_count == b[i].bytes_count &&
                  same_bytes(&a[i].bytes, b[i].bytes, b[i].bytes_count);
    }
    return is_same;
}

/* Changes `a`'s pointers to `b`'s, so that what is left can be compared as memory. */
static bool same_message(struct message *a, const struct message *b)
{
    bool is_same = a->type == b->type;

    switch (b->type) {
    case MESSAGE_PING:
    case MESSAGE_ACK:
        is_same = is_same &&
                  same_records(a->as.ping.updates, b->as.ping.updates, b->as.ping.updates_count);
        break;
    case MESSAGE_GOSSIP:
        is_same = is_same && same_records(a->as.gossip.updates, b->as.gossip.updates,
                                          b->as.gossip.updates_count);
        break;
    case MESSAGE_SYNC_REQ:
        is_same = is_same && same_bytes(&a->as.sync_req.digest, b->as.sync_req.digest,
                                        b->as.sync_req.digest_bytes);
        break;
    case MESSAGE_ACCUSE:
        is_same = is_same && same_bytes(&a->as.accuse.accusations, b->as.accuse.accusations,
                                        b->as.accuse.accusations_bytes);
        break;
    case MESSAGE_SYNC:
        is_same = is_same &&
                  same_records(a->as.sync.records, b->as.sync.records, b->as.sync.records_count);
        break;
    case MESSAGE_START:
        is_same = is_same && same_bytes(&a->as.form.statements, b->as.form.statements,
                                        b->as.form.statements_bytes);
        break;
    case MESSAGE_MANIFEST_PAGE:
        is_same = is_same && same_bytes(&a->as.manifest_page.hashes, b->as.manifest_page.hashes,
                                        b->as.manifest_page.hashes_bytes);
        break;
    case MESSAGE_PROGRESS:
        is_same = is_same && same_bytes(&a->as.progress.measured, b->as.progress.measured,
                                        b->as.progress.measured_bytes);
        break;
    case MESSAGE_SKETCH:
        is_same = is_same &&
                  same_bytes(&a->as.sketch.values, b->as.sketch.values, b->as.sketch.values_bytes);
        break;
    case MESSAGE_PREDICTIONS:
        is_same = is_same && same_bytes(&a->as.predictions.values, b->as.predictions.values,
                                        b->as.predictions.values_bytes);
        break;
    case MESSAGE_REVEAL:
        is_same = is_same &&
                  same_bytes(&a->as.reveal.bytes, b->as.reveal.bytes, b->as.reveal.bytes_bytes);
        break;
    case MESSAGE_STATUS:
        is_same =
            is_same && memcmp(a->as.status.text, b->as.status.text, b->as.status.text_bytes) == 0;
        a->as.status.text = b->as.status.text;
        break;
    default:
        break;
    }
    return is_same && memcmp(&a->as, &b->as, sizeof a->as) == 0;
}

/* A random message of each type comes out as it went in, and encodes to the same bytes again. */
static void random_messages_come_out_as_they_went_in(void **state)
{
    static struct wired wired;
    static uint8_t again[CONTROL_BYTES_MAX];

    (void)state;
    FOR_EACH_SEED (seed, 40) {
        FOR_EACH_TYPE(i)
        {
            struct inner_header header;
            struct message back;
            size_t count = 0;

            wire(&wired, example_types[i], seed);
            check_seed(seed, inner_header_decode(wired.bytes, wired.count, &header) == RC_OK);
            check_seed(seed, header.type == example_types[i] && header.flags == 0);
            check_seed(seed, unwire(&wired, &back) == RC_OK);
            check_seed(seed, message_encode(&back, again, sizeof again, &count) == RC_OK);
            check_seed(seed, count == wired.count && memcmp(again, wired.bytes, count) == 0);
            check_seed(seed, same_message(&back, &wired.message));
        }
    }
}

/* A body cut anywhere, or with a byte more, is refused, and the caller's message stays as it was.
 */
static void a_body_cut_anywhere_is_refused(void **state)
{
    static struct wired wired;

    (void)state;
    FOR_EACH_TYPE(i)
    {
        struct message back, untouched;

        memset(&back, 0xaa, sizeof back);
        untouched = back;
        wire(&wired, example_types[i], 0);
        for (size_t cut = INNER_HEADER_BYTES; cut < wired.count; cut++) {
            assert_int_equal(message_decode(example_types[i], wired.bytes + INNER_HEADER_BYTES,
                                            cut - INNER_HEADER_BYTES, &back),
                             RC_FORMAT);
        }
        wired.bytes[wired.count++] = 0;
        assert_int_equal(unwire(&wired, &back), RC_FORMAT);
        assert_memory_equal(&back, &untouched, sizeof back);
    }
}

/* Too small a buffer is an error at every size, and no byte beyond it is touched. */
static void a_buffer_that_is_short_is_an_error(void **state)
{
    static struct wired wired;
    static uint8_t out[CONTROL_BYTES_MAX];

    (void)state;
    FOR_EACH_TYPE(i)
    {
        size_t count = 0;

        wire(&wired, example_types[i], 0);
        for (size_t cap = 0; cap < wired.count; cap++) {
            out[cap] = 0x55;
            assert_int_equal(message_encode(&wired.message, out, cap, &count), RC_LIMIT);
            assert_int_equal(out[cap], 0x55);
        }
        assert_int_equal(message_encode(&wired.message, out, wired.count, &count), RC_OK);
    }
}

/* A map rebuilt pair by pair. */
struct edit {
    int drop, replace; /* keys; -1: none */
    const void *value; /* instead of the old one */
    size_t value_count;
    const void *extra; /* pairs added at the end */
    size_t extra_count;
    uint8_t extra_pairs;
};

static size_t edited(const struct wired *wired, const struct edit *edit, uint8_t *out)
{
    const uint8_t *at = wired->bytes + INNER_HEADER_BYTES;
    size_t left = wired->count - INNER_HEADER_BYTES, count = 1;
    uint8_t pairs = (uint8_t)(*at & 0x0f), kept = 0;

    at++;
    left--;
    for (uint8_t i = 0; i < pairs; i++) {
        size_t bytes = 0;
        int key = *at;

        assert_int_equal(scan_skip(at + 1, left - 1, &bytes), RC_OK);
        if (key != edit->drop) {
            const void *value = key == edit->replace ? edit->value : at + 1;
            size_t value_count = key == edit->replace ? edit->value_count : bytes;

            out[count++] = (uint8_t)key;
            memcpy(out + count, value, value_count);
            count += value_count;
            kept++;
        }
        at += 1 + bytes;
        left -= 1 + bytes;
    }
    if (edit->extra_count > 0) memcpy(out + count, edit->extra, edit->extra_count);
    count += edit->extra_count;
    kept = (uint8_t)(kept + edit->extra_pairs);
    out[0] = (uint8_t)(0x80 | kept);
    if (kept > 15) { /* a longer head */
        memmove(out + 3, out + 1, count - 1);
        memcpy(out, (const uint8_t[]){0xde, 0, kept}, 3);
        count += 2;
    }
    return count;
}

static enum rc decode_edited(enum message_type type, const struct edit *edit)
{
    static struct wired wired;
    static uint8_t out[CONTROL_BYTES_MAX];
    struct message back;

    wire(&wired, type, 0);
    return message_decode(type, out, edited(&wired, edit, out), &back);
}

/* Every key of every message but one is needed, and none may come twice. */
/* What goes without saying: START's schedule if it is direct (and its statements, which FORM, of
 * the same shape, does not have), rates that nobody has measured, that any schedule will do, that a
 * peer is not busy, and START's digest in the CREDIT of what is no group. */
static bool may_be_missing(enum message_type type, int key)
{
    if (type == MESSAGE_START) return key == 10 || key == 11;
    if (type == MESSAGE_CREDIT) return key == 2;
    if (type == MESSAGE_PREDICTIONS) return key == 5;
    if (type == MESSAGE_REVEAL) return key == 4;
    if (type == MESSAGE_PROGRESS) return key == 6 || key == 7 || key == 9 || key == 10;
    return (type == MESSAGE_JOIN && (key == 3 || key == 4)) || (type == MESSAGE_MEAN && key == 4);
}

static void keys_are_needed_and_come_once(void **state)
{
    (void)state;
    FOR_EACH_TYPE(i)
    {
        for (int key = 0; key < 16; key++) {
            static struct wired wired;
            struct edit drop = {.drop = key, .replace = -1};
            static uint8_t out[CONTROL_BYTES_MAX];
            bool has_key, is_needed;
            uint8_t twice[] = {(uint8_t)key, 0xc0};
            struct edit add = {-1, -1, NULL, 0, twice, sizeof twice, 1};

            wire(&wired, example_types[i], 0);
            has_key = edited(&wired, &drop, out) != wired.count - INNER_HEADER_BYTES;
            is_needed = has_key && !may_be_missing(example_types[i], key);
            if (example_types[i] == MESSAGE_FORM && key >= 10 && key <= 11) continue; /* START's */
            assert_int_equal(decode_edited(example_types[i], &drop), is_needed ? RC_FORMAT : RC_OK);
            assert_int_equal(decode_edited(example_types[i], &add), has_key ? RC_FORMAT : RC_OK);
        }
    }
}

/* A key from a later version is skipped with all that hangs on it, within the bounds of the scan.
 */
static void unknown_keys_are_skipped(void **state)
{
    static const uint8_t nested[] = {62, 0x92, 0x01, 0x81, 0xa1, 'x', 0xc4, 0x02, 9, 9,
                                     63, 0xcb, 0,    0,    0,    0,   0,    0,    0, 0};
    static const uint8_t large[] = {64, 0xc0};
    static const uint8_t text_key[] = {0xa1, 'k', 0xc0};
    static const uint8_t negative[] = {0xff, 0xc0};
    static const uint8_t twice[] = {60, 0xc0, 60, 0xc0};
    static const uint8_t deep[] = {60, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x90};

    (void)state;
    FOR_EACH_TYPE(i)
    {
        enum message_type type = example_types[i];
        struct edit edit = {-1, -1, NULL, 0, nested, sizeof nested, 2};

        assert_int_equal(decode_edited(type, &edit), RC_OK);
        edit = (struct edit){-1, -1, NULL, 0, large, sizeof large, 1};
        assert_int_equal(decode_edited(type, &edit), RC_FORMAT);
        edit = (struct edit){-1, -1, NULL, 0, text_key, sizeof text_key, 1};
        assert_int_equal(decode_edited(type, &edit), RC_FORMAT);
        edit = (struct edit){-1, -1, NULL, 0, negative, sizeof negative, 1};
        assert_int_equal(decode_edited(type, &edit), RC_FORMAT);
        edit = (struct edit){-1, -1, NULL, 0, twice, sizeof twice, 2};
        assert_int_equal(decode_edited(type, &edit), RC_FORMAT);
        edit = (struct edit){-1, -1, NULL, 0, deep, sizeof deep, 1};
        assert_int_equal(decode_edited(type, &edit), RC_LIMIT);
    }
}

#define VALUE(type, key, literal, rc)                                                              \
    {                                                                                              \
        (type), (key), "" literal, sizeof(literal) - 1, (rc)                                       \
    }

static const struct {
    enum message_type type;
    int key;
    const char *value;
    size_t count;
    enum rc rc;
} values[] = {
    VALUE(MESSAGE_ERROR, 0, "\x00", RC_FORMAT),
    VALUE(MESSAGE_ERROR, 0, "\x06", RC_OK),
    VALUE(MESSAGE_ERROR, 0, "\x07", RC_FORMAT),
    VALUE(MESSAGE_ERROR, 1, "\xa1\x1b", RC_FORMAT),
    VALUE(MESSAGE_ERROR, 1, "\xa1\x00", RC_FORMAT),
    VALUE(MESSAGE_ERROR, 1, "\xa2\xc3\xa4", RC_FORMAT),
    VALUE(MESSAGE_ERROR, 1, "\xc4\x01x", RC_FORMAT),
    VALUE(MESSAGE_GOAWAY, 0, "\x04", RC_FORMAT),
    VALUE(MESSAGE_GOAWAY, 1, "\xcf\x00\x00\x00\x01\x00\x00\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_PING, 0, "\xff", RC_FORMAT),
    VALUE(MESSAGE_PING, 0, "\xd0\x01", RC_FORMAT),
    VALUE(MESSAGE_PING, 0, "\xca\x00\x00\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_PING, 2, "\x91\xc4\x00", RC_FORMAT),
    VALUE(MESSAGE_PING, 2, "\x91\xa1x", RC_FORMAT),
    VALUE(MESSAGE_PING, 2, "\x90", RC_OK),
    VALUE(MESSAGE_PING, 2, "\x80", RC_FORMAT),
    VALUE(MESSAGE_PING, 2, "\x99\x01\x01\x01\x01\x01\x01\x01\x01\x01", RC_FORMAT),
    VALUE(MESSAGE_SYNC, 0, "\xcd\x20\x01", RC_FORMAT),
    VALUE(MESSAGE_SYNC, 2, "\x00", RC_FORMAT), /* fewer pages than the page's number */
    VALUE(MESSAGE_PROGRESS, 0, "\xc4\x02xx", RC_FORMAT),
    VALUE(MESSAGE_PROGRESS, 4, "\x01", RC_FORMAT),
    VALUE(MESSAGE_PROGRESS, 4, "\xc2", RC_OK),
    VALUE(MESSAGE_PROGRESS, 10, "\xc4\x07xxxxxxx", RC_FORMAT), /* not whole channels */
    VALUE(MESSAGE_OFFER, 0, "\xc4\x02xx", RC_FORMAT),
    VALUE(MESSAGE_OFFER, 3,
          "\xd9\x1f"
          "0123456789012345678901234567890",
          RC_OK),
    VALUE(MESSAGE_OFFER, 3,
          "\xd9\x20"
          "01234567890123456789012345678901",
          RC_FORMAT),
    VALUE(MESSAGE_OFFER, 4, "\x00", RC_FORMAT),
    VALUE(MESSAGE_OFFER, 4, "\xce\x00\x01\x00\x00", RC_OK),
    VALUE(MESSAGE_OFFER, 4, "\xce\x00\x01\x00\x01", RC_FORMAT),
    VALUE(MESSAGE_OFFER, 5, "\xca\x00\x00\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_OFFER, 5, "\xca\x80\x00\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_OFFER, 5, "\xca\x00\x00\x00\x01", RC_OK),
    VALUE(MESSAGE_OFFER, 5, "\xca\x3f\x00\x00\x00", RC_OK),
    VALUE(MESSAGE_OFFER, 5, "\xca\x3f\x00\x00\x01", RC_FORMAT),
    VALUE(MESSAGE_OFFER, 5, "\xca\xbe\x00\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_OFFER, 5, "\xca\x7f\xc0\x00\x00", RC_NONFINITE),
    VALUE(MESSAGE_OFFER, 5, "\xca\x7f\x80\x00\x00", RC_NONFINITE),
    VALUE(MESSAGE_OFFER, 5, "\xcb\x3f\xd0\x00\x00\x00\x00\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_OFFER, 5, "\x00", RC_FORMAT),
    VALUE(MESSAGE_EDGE_OPEN, 7, "\xca\x7f\x7f\xff\xff", RC_OK),
    VALUE(MESSAGE_EDGE_OPEN, 7, "\xca\x00\x00\x00\x00", RC_OK),
    VALUE(MESSAGE_EDGE_OPEN, 7, "\xca\xff\x80\x00\x00", RC_NONFINITE),
    VALUE(MESSAGE_EDGE_OPEN, 7, "\xca\xbf\x80\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_ACCEPT, 2, "\xce\x00\x01\x00\x01", RC_FORMAT),
    VALUE(MESSAGE_REJECT, 1, "\x00", RC_FORMAT),
    VALUE(MESSAGE_REJECT, 1, "\x07", RC_FORMAT),
    VALUE(MESSAGE_READY, 1, "\xc4\x03xxx", RC_FORMAT),
    VALUE(MESSAGE_READY, 1, "\xca\x3f\x80\x00\x00", RC_OK),
    VALUE(MESSAGE_READY, 1, "\xca\xbf\x80\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_READY, 1, "\xca\x7f\xc0\x00\x00", RC_NONFINITE),
    VALUE(MESSAGE_READY, 1, "\xca\x7f\x80\x00\x00", RC_NONFINITE),
    VALUE(MESSAGE_ABORT, 1, "\x07", RC_OK),
    VALUE(MESSAGE_ABORT, 1, "\x08", RC_FORMAT),
    VALUE(MESSAGE_OUTCOME, 1, "\x03", RC_FORMAT),
    VALUE(MESSAGE_SHARE, 5, "\x00", RC_FORMAT),
    VALUE(MESSAGE_SHARE, 6, "\xca\x00\x00\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_SHARE, 6, "\xca\xbf\x80\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_SHARE, 6, "\xca\x7f\x80\x00\x00", RC_NONFINITE),
    VALUE(MESSAGE_SHARE, 6, "\xca\x3f\x80\x00\x00", RC_OK),
    VALUE(MESSAGE_APPLIED, 1, "\x03", RC_OK),
    VALUE(MESSAGE_APPLIED, 1, "\x04", RC_FORMAT),
    VALUE(MESSAGE_FORM, 2, "\xc4\x00", RC_FORMAT),
    VALUE(MESSAGE_FORM, 2,
          "\xc4\x24"
          "aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb",
          RC_OK),
    VALUE(MESSAGE_FORM, 2,
          "\xc4\x23"
          "aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbb",
          RC_FORMAT),
    VALUE(MESSAGE_START, 2,
          "\xc4\x48"
          "aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb"
          "aaaaaaaaaaaaaaaaaaaacccccccccccccccc",
          RC_FORMAT),
    VALUE(MESSAGE_MEAN, 1, "\x40", RC_FORMAT),
    VALUE(MESSAGE_CREDIT, 0, "\xcf\x00\x01\x00\x00\x00\x00\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_CREDIT, 1, "\x00", RC_OK),
    VALUE(MESSAGE_CANCEL, 1, "\x02", RC_FORMAT),
    VALUE(MESSAGE_STATE_REQ, 0, "\x00", RC_FORMAT),
    VALUE(MESSAGE_STATE_REQ, 0, "\x3f", RC_OK),
    VALUE(MESSAGE_STATE_REQ, 0, "\x40", RC_FORMAT),
    VALUE(MESSAGE_STATE_MANIFEST, 2, "\xc4\x08\x00xxxxxxx", RC_FORMAT),
    VALUE(MESSAGE_STATE_MANIFEST, 2, "\xc4\x09\x08\x00\x00\x00\x00\x00\x00\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_STATE_MANIFEST, 2, "\xc4\x09\x07\x00\x00\x00\x80\x00\x00\x00\x00", RC_OK),
    VALUE(MESSAGE_STATE_MANIFEST, 2, "\xc4\x09\x07\x01\x00\x00\x80\x00\x00\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_STATE_MANIFEST, 2,
          "\xc4\x12\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
          RC_FORMAT),                                    /* a section twice */
    VALUE(MESSAGE_STATE_MANIFEST, 5, "\x00", RC_FORMAT), /* too few pages for its buckets */
    VALUE(MESSAGE_STATE_MANIFEST, 5, "\x41", RC_FORMAT),
    VALUE(MESSAGE_MANIFEST_REQ, 0, "\x40", RC_FORMAT),
    VALUE(MESSAGE_MANIFEST_PAGE, 1,
          "\xc4\x1f"
          "0123456789012345678901234567890",
          RC_FORMAT),
    VALUE(MESSAGE_MANIFEST_PAGE, 1, "\xc4\x00", RC_OK),
    VALUE(MESSAGE_BUCKET_REQ, 2, "\x00", RC_FORMAT),
    VALUE(MESSAGE_BUCKET_REQ, 2, "\xce\x00\x01\x00\x00", RC_FORMAT), /* runs past the end */
    VALUE(MESSAGE_STATE_DENY, 0, "\x08", RC_FORMAT),
    VALUE(MESSAGE_SKETCH, 0, "\xc4\x00", RC_FORMAT),
    VALUE(MESSAGE_SKETCH, 3, "\xca\x7f\xc0\x00\x00", RC_NONFINITE),
    VALUE(MESSAGE_SKETCH, 3, "\xca\xbf\x80\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_SKETCH, 4, "\xca\x7f\xc0\x00\x00", RC_NONFINITE),
    VALUE(MESSAGE_SKETCH, 4, "\xca\xbf\x80\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_SCORE, 0, "\xca\x7f\xc0\x00\x00", RC_NONFINITE),
    VALUE(MESSAGE_SCORE, 0, "\xca\xbf\x80\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_SCORE, 3, "\xca\x00\x00\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_SCORE, 4, "\xca\xbf\x80\x00\x00", RC_FORMAT),
    VALUE(MESSAGE_STATUS, 0, "\xc4\x02{}", RC_FORMAT),
};

/* Every range of the tables holds at its border, and a value of another type is refused. */
static void values_out_of_range_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        struct edit edit = {-1, values[i].key, values[i].value, values[i].count, NULL, 0, 0};
        enum rc rc = decode_edited(values[i].type, &edit);

        if (rc != values[i].rc) {
            fprintf(stderr, "%s, row %zu\n", message_type_name(values[i].type), i);
        }
        assert_int_equal(rc, values[i].rc);
    }
}

/* What is no map, or no message with a body of that kind, is refused. */
static void what_is_no_map_is_refused(void **state)
{
    static uint8_t body[CONTROL_BYTES_MAX];
    struct message back;

    (void)state;
    assert_int_equal(message_decode(MESSAGE_FIN, (const uint8_t *)"\x80", 1, &back), RC_OK);
    assert_int_equal(message_decode(MESSAGE_FIN, (const uint8_t *)"\x90", 1, &back), RC_FORMAT);
    assert_int_equal(message_decode(MESSAGE_FIN, (const uint8_t *)"\xc0", 1, &back), RC_FORMAT);
    assert_int_equal(message_decode(MESSAGE_FIN, body, 0, &back), RC_FORMAT);
    assert_int_equal(message_decode(MESSAGE_DATA, (const uint8_t *)"\x80", 1, &back), RC_FORMAT);
    assert_int_equal(message_decode((enum message_type)9, (const uint8_t *)"\x80", 1, &back),
                     RC_FORMAT);
    assert_int_equal(message_decode((enum message_type)300, (const uint8_t *)"\x80", 1, &back),
                     RC_FORMAT);
    assert_int_equal(message_decode(MESSAGE_STATUS, body, sizeof body, &back), RC_LIMIT);
    assert_int_equal(message_decode(MESSAGE_FIN, (const uint8_t *)"\xdf\xff\xff\xff\xff", 5, &back),
                     RC_FORMAT);
}

/* What does not fit where it is to go is said at home. */
static void a_message_without_room_is_an_error(void **state)
{
    static uint8_t out[CONTROL_BYTES_MAX];
    struct message message = {.type = MESSAGE_READY, .as.ready = {.squared = 1}};
    size_t count = 0, most = 0;

    (void)state;
    assert_int_equal(message_encode(&message, out, sizeof out, &most), RC_OK);
    for (size_t cap = 0; cap < most; cap++) {
        assert_int_equal(message_encode(&message, out, cap, &count), RC_LIMIT);
    }
    assert_int_equal(message_encode(&message, out, most, &count), RC_OK);
}

/* Text that does not print leaves as question marks, so that the other side takes it. */
static void unprintable_text_is_cleaned(void **state)
{
    static uint8_t out[CONTROL_BYTES_MAX];
    struct message back,
        message = {.type = MESSAGE_ERROR, .as.error = {ERROR_MODEL, "a\nb\x7f\xc3\xa4"}};
    size_t count = 0;

    (void)state;
    assert_int_equal(message_encode(&message, out, sizeof out, &count), RC_OK);
    assert_int_equal(
        message_decode(MESSAGE_ERROR, out + INNER_HEADER_BYTES, count - INNER_HEADER_BYTES, &back),
        RC_OK);
    assert_string_equal(back.as.error.text, "a?b???");
}

/* Inner headers come out as they went in; short ones, unknown types and stray flags are refused. */
static void inner_headers_are_exact(void **state)
{
    struct inner_header header = {MESSAGE_DATA, DATA_RELAY, 0x1234,
                                  0x56789abc,   0x05060708, 0x01020304};
    struct inner_header back;
    uint8_t bytes[INNER_HEADER_BYTES];
    size_t known = 0;

    (void)state;
    memset(&back, 0, sizeof back);
    inner_header_encode(&header, bytes);
    assert_memory_equal(bytes, "\x80\x03\x34\x12\xbc\x9a\x78\x56\x08\x07\x06\x05\x04\x03\x02\x01",
                        INNER_HEADER_BYTES);
    assert_int_equal(inner_header_decode(bytes, sizeof bytes, &back), RC_OK);
    assert_true(back.type == header.type && back.flags == header.flags &&
                back.stream == header.stream && back.arg == header.arg &&
                back.offset == header.offset && back.after == header.after);
    for (size_t cut = 0; cut < sizeof bytes; cut++) {
        assert_int_equal(inner_header_decode(bytes, cut, &back), RC_FORMAT);
    }
    bytes[1] = DATA_FULL + 1;
    assert_int_equal(inner_header_decode(bytes, sizeof bytes, &back), RC_FORMAT);
    bytes[0] = MESSAGE_FIN;
    bytes[1] = 1;
    assert_int_equal(inner_header_decode(bytes, sizeof bytes, &back), RC_FORMAT);
    bytes[1] = 0;
    for (int type = 0; type < 256; type++) {
        bool is_known = strcmp(message_type_name((enum message_type)type), "unknown") != 0;

        bytes[0] = (uint8_t)type;
        assert_int_equal(inner_header_decode(bytes, sizeof bytes, &back),
                         is_known ? RC_OK : RC_FORMAT);
        known += is_known;
    }
    assert_int_equal(known, ARRAY_COUNT(example_types) + 1); /* the examples leave out only DATA */
}

/* Every body is what msgpack-c itself reads as one map with rising integer keys. */
static void the_library_reads_what_we_write(void **state)
{
    static struct wired wired;

    (void)state;
    FOR_EACH_TYPE(i)
    {
        msgpack_unpacked unpacked;
        size_t off = INNER_HEADER_BYTES;
        const msgpack_object_map *map;

        wire(&wired, example_types[i], 3);
        msgpack_unpacked_init(&unpacked);
        assert_int_equal(
            msgpack_unpack_next(&unpacked, (const char *)wired.bytes, wired.count, &off),
            MSGPACK_UNPACK_SUCCESS);
        assert_int_equal(off, wired.count);
        assert_int_equal(unpacked.data.type, MSGPACK_OBJECT_MAP);
        map = &unpacked.data.via.map;
        for (uint32_t k = 0; k < map->size; k++) {
            assert_int_equal(map->ptr[k].key.type, MSGPACK_OBJECT_POSITIVE_INTEGER);
            assert_true(k == 0 || map->ptr[k].key.via.u64 > map->ptr[k - 1].key.via.u64);
        }
        if (example_types[i] == MESSAGE_OFFER) {
            const struct message_offer *offer = &wired.message.as.offer;

            assert_int_equal(map->size, 8);
            assert_int_equal(map->ptr[0].val.via.bin.size, 44);
            assert_memory_equal(map->ptr[0].val.via.bin.ptr, offer->key.initiator.bytes, 20);
            assert_int_equal(map->ptr[1].val.via.u64, offer->step);
            assert_memory_equal(map->ptr[2].val.via.bin.ptr, &offer->schema, DIGEST_BYTES);
            assert_int_equal(map->ptr[3].val.via.str.size, strlen(offer->codec));
            assert_int_equal(map->ptr[4].val.via.u64, offer->chunks);
            assert_true((float)map->ptr[5].val.via.f64 == offer->alpha);
            assert_int_equal(map->ptr[6].val.via.u64, offer->deadline_ms);
            assert_memory_equal(map->ptr[7].val.via.bin.ptr, &offer->lineage, DIGEST_BYTES);
        }
        msgpack_unpacked_destroy(&unpacked);
    }
}

/* gossip/WIRE.md shows each message as it is. */
static void the_readme_shows_what_is_sent(void **state)
{
    static struct golden golden;
    static struct wired wired;

    (void)state;
    FOR_EACH_TYPE(i)
    {
        wire(&wired, example_types[i], 0);
        golden_print(&golden, "%s%s\n", i > 0 ? "\n" : "```text\n",
                     message_type_name(example_types[i]));
        golden_hexdump(&golden, wired.bytes, wired.count);
    }
    golden_print(&golden, "```\n");
    golden_compare(&golden, "gossip/WIRE.md", "messages");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_messages_come_out_as_they_went_in),
        cmocka_unit_test(a_body_cut_anywhere_is_refused),
        cmocka_unit_test(a_buffer_that_is_short_is_an_error),
        cmocka_unit_test(keys_are_needed_and_come_once),
        cmocka_unit_test(unknown_keys_are_skipped),
        cmocka_unit_test(values_out_of_range_are_refused),
        cmocka_unit_test(what_is_no_map_is_refused),
        cmocka_unit_test(a_message_without_room_is_an_error),
        cmocka_unit_test(unprintable_text_is_cleaned),
        cmocka_unit_test(inner_headers_are_exact),
        cmocka_unit_test(the_library_reads_what_we_write),
        cmocka_unit_test(the_readme_shows_what_is_sent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
