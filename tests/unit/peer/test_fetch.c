/* fetch: the model of each member comes whole or not at all, a few at a time; who dies, refuses, is
 * busy, lies or drips costs the others nothing but a bounded wait. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "peer/download/donor.h"
#include "peer/download/fetch.h"
#include "peer/times.h"

#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 9, VALUES = 2 * CHUNK_VALUES + 10, BUCKETS = 3, NEVER = 1000 };

/* What a member does, besides giving what it has. */
enum manner { HONEST, MUTE, CLOSED, BUSY_FIRST, SPOILS, OTHER_MODEL, UNFIT, DRIPS, TRICKLES };

struct site {
    enum manner manner;
    struct identity identity;
    struct donor *donor;
    struct outbox out;
    uint32_t buckets_left; /* then its link is lost */
    bool is_linked, returns;
    uint32_t dials, denied, taken; /* taken: models that the caller was given */
    uint64_t spoke_ns;             /* TRICKLES: its last bucket */
    float fill;
};

struct scene {
    struct schema schema, other;
    struct peer_id self, ids[MEMBERS];
    struct site sites[MEMBERS];
    struct fetch *fetch;
    struct inquiry *inquiry;
    struct outbox out;
    uint32_t members, held, held_most; /* held: schemas that fetch has of us */
    uint64_t now_ns, blocks;
    enum rc model_rc;
};

static void make_schema(struct schema *schema, uint32_t values)
{
    const uint32_t shape[] = {values};

    schema_init(schema);
    assert_int_equal(schema_add(schema, "w", SECTION_PARAMETERS, shape, 1), RC_OK);
}

/* ---- the caller ---- */

static enum rc on_status(void *context, uint32_t member, const char *text, size_t bytes,
                         const struct schema **schema, uint32_t *want, struct fault *why)
{
    struct scene *s = context;

    assert_int_equal(bytes, 2);
    assert_memory_equal(text, "{}", 2);
    if (s->sites[member].manner == UNFIT) return fault_set(why, RC_SHAPE, "it does not fit");
    *schema = &s->schema;
    *want = 1;
    if (++s->held > s->held_most) s->held_most = s->held;
    return RC_OK;
}

static enum rc on_model(void *context, uint32_t member, const struct joiner *joiner,
                        struct fault *why)
{
    struct scene *s = context;
    size_t count;
    const float *values = joiner_section(joiner, SECTION_PARAMETERS, &count);

    if (s->model_rc != RC_OK) return fault_set(why, s->model_rc, "no room");
    assert_int_equal(count, VALUES);
    for (size_t i = 0; i < count; i++) {
        assert_true(values[i] == s->sites[member].fill + (float)i);
    }
    s->sites[member].taken++;
    return RC_OK;
}

static void on_gone(void *context, uint32_t member)
{
    struct scene *s = context;

    assert_true(member < s->members && s->held > 0);
    s->held--;
}

/* ---- the members ---- */

static void begin(struct scene *s, uint32_t members)
{
    const struct fetch_options options = {.members = members,
                                          .run_id = hash_of("run", 3),
                                          .silence_ns = 30 * NS_PER_S,
                                          .on_status = on_status,
                                          .on_model = on_model,
                                          .on_gone = on_gone,
                                          .context = s};

    memset(s, 0, sizeof *s);
    assert_int_equal(secure_start(), RC_OK);
    s->blocks = mem_blocks();
    s->now_ns = NS_PER_S;
    s->members = members;
    s->self = (struct peer_id){{200}};
    make_schema(&s->schema, VALUES);
    make_schema(&s->other, VALUES + 1);
    outbox_init(&s->out);
    for (uint32_t i = 0; i < members; i++) {
        struct site *site = &s->sites[i];
        const uint8_t seed[SECRET_BYTES] = {(uint8_t)(i + 1)};

        identity_from_seed(seed, &site->identity);
        s->ids[i] = identity_peer_id(site->identity.public_key);
        site->buckets_left = NEVER;
        site->fill = (float)(1000 * i);
        outbox_init(&site->out);
    }
    s->fetch = fetch_create(&options, s->now_ns);
    assert_non_null(s->fetch);
    s->inquiry = fetch_inquiry(s->fetch);
}

/* Once it is known what they are like. */
static void make_donors(struct scene *s)
{
    for (uint32_t i = 0; i < s->members; i++) {
        struct site *site = &s->sites[i];
        site->donor = donor_create(site->manner == OTHER_MODEL ? &s->other : &s->schema,
                                   &site->identity, hash_of("run", 3));
        assert_non_null(site->donor);
    }
}

static void end(struct scene *s)
{
    fetch_destroy(s->fetch);
    assert_int_equal(s->held, 0);
    for (uint32_t i = 0; i < s->members; i++) {
        donor_destroy(s->sites[i].donor);
        outbox_deinit(&s->sites[i].out);
    }
    outbox_deinit(&s->out);
    schema_deinit(&s->schema);
    schema_deinit(&s->other);
    assert_int_equal(mem_blocks(), s->blocks);
}

static uint32_t site_of(const struct scene *s, struct peer_id id)
{
    for (uint32_t i = 0; i < s->members; i++) {
        if (peer_id_is_equal(s->ids[i], id)) return i;
    }
    fail_msg("a message to nobody");
    return 0;
}

static void decode(const struct outbox_entry *entry, struct message *message)
{
    struct inner_header header;

    assert_int_equal(inner_header_decode(entry->inner->bytes, entry->inner->count, &header), RC_OK);
    assert_int_equal(message_decode(header.type, entry->inner->bytes + INNER_HEADER_BYTES,
                                    entry->inner->count - INNER_HEADER_BYTES, message),
                     RC_OK);
}

static enum rc tell(struct scene *s, uint32_t i, const struct message *message, struct fault *why)
{
    return s->inquiry->ops->on_message(s->inquiry, i, message, s->now_ns, why);
}

static void lose(struct scene *s, uint32_t i)
{
    struct site *site = &s->sites[i];

    site->is_linked = false;
    donor_on_link_lost(site->donor, s->self, s->now_ns);
    s->inquiry->ops->on_lost(s->inquiry, i, "its link was lost", s->now_ns);
}

static void give_snapshot(struct scene *s, struct site *site)
{
    const size_t count = site->manner == OTHER_MODEL ? VALUES + 1 : VALUES;
    struct donor_snapshot snapshot = {.step = 70,
                                      .lineage = hash_of("l", 1),
                                      .sections_count = 1,
                                      .sections = {SECTION_PARAMETERS},
                                      .counts = {count}};
    struct donor_wish wish;

    if (!donor_wants_snapshot(site->donor, &wish)) return;
    snapshot.values[0] = mem_array(count, sizeof(float));
    assert_non_null(snapshot.values[0]);
    for (size_t i = 0; i < count; i++) {
        snapshot.values[0][i] = site->fill + (float)i;
    }
    assert_int_equal(donor_snapshot_hash(&snapshot), RC_OK);
    donor_begin_snapshot(site->donor);
    donor_on_snapshot(site->donor, RC_OK, &snapshot, s->now_ns, &site->out);
}

static void site_hears(struct scene *s, uint32_t i, const struct message *message)
{
    struct site *site = &s->sites[i];
    struct message answer = {.type = MESSAGE_STATUS};

    if (!site->is_linked || site->manner == MUTE) return;
    if (message->type == MESSAGE_STATUS_REQ) {
        answer.as.status.text = "{}";
        answer.as.status.text_bytes = 2;
        assert_int_equal(tell(s, i, &answer, NULL), RC_OK);
    } else if (message->type == MESSAGE_STATE_REQ &&
               (site->manner == CLOSED || (site->manner == BUSY_FIRST && site->denied < 2))) {
        site->denied++;
        answer.type = MESSAGE_STATE_DENY;
        answer.as.state_deny.code = site->manner == CLOSED ? REJECT_CLOSED : REJECT_BUSY;
        assert_int_equal(tell(s, i, &answer, NULL), RC_OK);
    } else if (message->type == MESSAGE_STATE_REQ) {
        assert_int_equal(
            donor_on_visit(site->donor, s->self, &message->as.state_req, s->now_ns, &site->out),
            RC_OK);
        give_snapshot(s, site);
    } else {
        const enum rc rc = donor_on_message(site->donor, s->self, message, s->now_ns, &site->out);
        assert_true(rc == RC_OK || rc == RC_STALE);
    }
}

/* False: it has nothing more to say now. */
static bool site_speaks(struct scene *s, uint32_t i, struct fault *why, enum rc *rc)
{
    struct site *site = &s->sites[i];
    struct inner_header header = {.type = MESSAGE_DATA, .flags = DATA_STATE};
    struct outbox held = site->out;
    const uint8_t *bytes;
    uint8_t *copy;
    size_t count;

    outbox_init(&site->out);
    for (uint32_t k = 0; k < held.count && *rc == RC_OK; k++) {
        struct message message;
        decode(&held.entries[k], &message);
        if (site->is_linked) *rc = tell(s, i, &message, why);
    }
    outbox_deinit(&held);
    if (!site->is_linked || *rc != RC_OK) return false;
    if (site->manner == DRIPS && s->now_ns / NS_PER_S % 14 != 0) return false;
    if (site->manner == TRICKLES && s->now_ns < site->spoke_ns + 15 * NS_PER_S) return false;
    if (!donor_next_bucket(site->donor, s->self, s->now_ns, &header.stream, &header.arg, &bytes,
                           &count)) {
        return false;
    }
    if (site->buckets_left == 0) {
        lose(s, i);
        return true;
    }
    site->buckets_left--;
    site->spoke_ns = s->now_ns;
    copy = malloc(count);
    memcpy(copy, bytes, count);
    if (site->manner == SPOILS) copy[count / 2] ^= 1;
    *rc = s->inquiry->ops->on_data(s->inquiry, i, &header, copy, count, s->now_ns, why);
    free(copy);
    return true;
}

/* Until it is over; how long that took. */
static uint64_t run(struct scene *s, enum rc wanted)
{
    const uint64_t begun_ns = s->now_ns;
    struct fault why = {""};
    enum rc rc = RC_OK;
    uint32_t member;

    make_donors(s);
    while (!s->inquiry->ops->is_over(s->inquiry) && rc == RC_OK) {
        s->now_ns += NS_PER_S / 4;
        assert_true(s->now_ns < begun_ns + 3600 * NS_PER_S);
        s->inquiry->ops->tick(s->inquiry, s->ids, s->now_ns, &s->out);
        for (uint32_t i = 0; i < s->out.count; i++) {
            struct message message;
            decode(&s->out.entries[i], &message);
            site_hears(s, site_of(s, s->out.entries[i].to), &message);
        }
        outbox_clear(&s->out);
        for (uint32_t i = 0; i < s->members; i++) {
            while (site_speaks(s, i, &why, &rc)) {
            }
        }
        while (rc == RC_OK && s->inquiry->ops->next_dial(s->inquiry, s->now_ns, &member)) {
            struct site *site = &s->sites[member];
            if (site->dials++ > 0 && !site->returns) {
                s->inquiry->ops->on_lost(s->inquiry, member, "it cannot be reached", s->now_ns);
                continue;
            }
            site->is_linked = true;
            if (site->dials > 1) site->buckets_left = NEVER;
            s->inquiry->ops->on_open(s->inquiry, member, s->ids[member], s->now_ns);
        }
    }
    assert_int_equal(rc, wanted);
    return s->now_ns - begun_ns;
}

static struct fetch_view view_of(const struct scene *s, uint32_t member)
{
    struct fetch_view view;

    fetch_view(s->fetch, member, &view);
    return view;
}

/* ---- what holds ---- */

static void every_model_comes_whole_and_few_at_a_time(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, MEMBERS);
    (void)run(&s, RC_OK);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(view_of(&s, i).state, INQUIRY_DONE);
        assert_null(view_of(&s, i).why);
        assert_int_equal(view_of(&s, i).step, 70);
        assert_int_equal(s.sites[i].taken, 1);
        assert_int_equal(donor_leases(s.sites[i].donor), 0); /* it was told that this is all */
    }
    assert_int_equal(s.held_most, 4);
    assert_true(s.inquiry->ops->progress(s.inquiry) == 1.0);
    end(&s);
}

static void who_dies_is_left_out_and_who_returns_is_not(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 3);
    s.sites[0].buckets_left = 1;
    s.sites[1].buckets_left = 2;
    s.sites[1].returns = true;
    s.sites[2].manner = DRIPS; /* so there is something to wait for */
    (void)run(&s, RC_OK);
    assert_int_equal(view_of(&s, 0).state, INQUIRY_LOST);
    assert_non_null(view_of(&s, 0).why);
    assert_int_equal(s.sites[0].taken, 0);
    assert_int_equal(view_of(&s, 1).state, INQUIRY_DONE);
    assert_int_equal(s.sites[1].taken, 1);
    assert_int_equal(view_of(&s, 2).state, INQUIRY_DONE);
    end(&s);
}

/* What comes a second time is news, too: it does not look like silence until there is more than the
 * first time. */
static void who_returns_begins_from_nothing(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 1);
    s.sites[0].manner = TRICKLES;
    s.sites[0].buckets_left = BUCKETS - 1;
    s.sites[0].returns = true;
    (void)run(&s, RC_OK);
    assert_int_equal(s.sites[0].dials, 2);
    assert_int_equal(view_of(&s, 0).state, INQUIRY_DONE);
    end(&s);
}

static void refusals_are_told_and_the_busy_are_asked_again(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 3);
    s.sites[0].manner = CLOSED;
    s.sites[1].manner = BUSY_FIRST;
    s.sites[2].manner = UNFIT;
    (void)run(&s, RC_OK);
    assert_int_equal(view_of(&s, 0).state, INQUIRY_REFUSED);
    assert_non_null(strstr(view_of(&s, 0).why, "members only"));
    assert_int_equal(s.sites[0].denied, 1);
    assert_int_equal(view_of(&s, 1).state, INQUIRY_DONE);
    assert_int_equal(s.sites[1].denied, 2);
    assert_int_equal(view_of(&s, 2).state, INQUIRY_REFUSED);
    assert_non_null(strstr(view_of(&s, 2).why, "it does not fit"));
    end(&s);
}

static void what_is_not_as_it_was_signed_counts_for_nothing(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 3);
    s.sites[0].manner = SPOILS;
    s.sites[1].manner = OTHER_MODEL;
    (void)run(&s, RC_OK);
    assert_int_equal(view_of(&s, 0).state, INQUIRY_BAD);
    assert_int_equal(view_of(&s, 1).state, INQUIRY_BAD);
    assert_int_equal(s.sites[0].taken + s.sites[1].taken, 0);
    assert_int_equal(view_of(&s, 2).state, INQUIRY_DONE);
    end(&s);
}

/* Four that hold all places and say nothing: they are given up, and the others have their turn. */
static void the_silent_cost_a_bounded_wait(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 6);
    for (int i = 0; i < 4; i++) {
        s.sites[i].manner = MUTE;
    }
    assert_true(run(&s, RC_OK) <= 31 * NS_PER_S); /* nobody says anything new: that is the end */
    assert_int_equal(view_of(&s, 0).state, INQUIRY_ASKING);
    assert_string_equal(view_of(&s, 0).why, "it fell silent");
    end(&s);

    begin(&s, 3);
    s.sites[0].manner = DRIPS;
    s.sites[1].manner = MUTE;
    assert_true(run(&s, RC_OK) < FETCH_LIFE_NS);
    assert_int_equal(view_of(&s, 0).state, INQUIRY_DONE);
    assert_int_equal(view_of(&s, 2).state, INQUIRY_DONE);
    end(&s);
}

static void what_goes_wrong_here_ends_it(void **state)
{
    struct scene s;

    (void)state;
    begin(&s, 2);
    s.model_rc = RC_DISK_FULL;
    (void)run(&s, RC_DISK_FULL);
    end(&s);

    begin(&s, 2);
    s.model_rc = RC_NONFINITE; /* the member's fault */
    (void)run(&s, RC_OK);
    assert_int_equal(view_of(&s, 1).state, INQUIRY_BAD);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_comes_whole_and_few_at_a_time),
        cmocka_unit_test(who_dies_is_left_out_and_who_returns_is_not),
        cmocka_unit_test(who_returns_begins_from_nothing),
        cmocka_unit_test(refusals_are_told_and_the_busy_are_asked_again),
        cmocka_unit_test(what_is_not_as_it_was_signed_counts_for_nothing),
        cmocka_unit_test(the_silent_cost_a_bounded_wait),
        cmocka_unit_test(what_goes_wrong_here_ends_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
