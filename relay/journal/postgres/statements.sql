-- Statements of the PostgreSQL store. {record} and {event} are the columns of `records.Record` and `records.Event`.
-- What changes several tables is a function of the migrations: one statement, whose transaction no caller can leave open.

-- admit: submissions onto the disk, or those that are there
SELECT told.fresh, told.same_bytes, told.age_ms, {record}
FROM relay.admit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) WITH ORDINALITY AS told
CROSS JOIN LATERAL (SELECT (told.moved).*) AS submission
ORDER BY told.ordinality;

-- seal: the intent to send
SELECT told.sealed, told.attempt, {record}
FROM relay.seal($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) WITH ORDINALITY AS told
CROSS JOIN LATERAL (SELECT (told.moved).*) AS submission
ORDER BY told.ordinality;

-- decide: decisions and their facts
SELECT told.decided, {record}
FROM relay.decide(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23
) WITH ORDINALITY AS told
CROSS JOIN LATERAL (SELECT (told.moved).*) AS submission
ORDER BY told.ordinality;

-- attempt: one more send
SELECT relay.attempt($1, $2, $3, $4);

-- note: facts
SELECT relay.note($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- by_id: one record
SELECT {record} FROM relay.submission WHERE id = $1;

-- by_hash: the record of a transaction, on whatever chain where none is named
SELECT {record} FROM relay.submission WHERE hash = $2 AND chain_id = coalesce($1, chain_id) ORDER BY id DESC LIMIT 1;

-- by_key: whose an idempotency key is, and how long it has been
SELECT relay.now_ms() - idempotency.first_ms, {record}
FROM relay.idempotency JOIN relay.submission ON submission.id = idempotency.submission
WHERE idempotency.chain_id = $1 AND idempotency.sender = $2 AND idempotency.key = $3;

-- payload: what is sent
SELECT raw, method, params FROM relay.payload WHERE submission = $1;

-- unfinished: a page of open rows in the order of the lanes
SELECT {record} FROM relay.submission
WHERE state NOT IN ('completed', 'failed', 'superseded', 'cancelled')
    AND (chain_id, sender, nonce, id) > ($1, $2, $3, $4)
    AND state = ANY ($5)
ORDER BY chain_id, sender, nonce, id LIMIT $6;

-- outstanding: a page of lanes with live rows
SELECT chain_id, sender, min(nonce), count(*), min(admitted_ms) FROM relay.submission
WHERE state NOT IN ('completed', 'failed', 'superseded', 'cancelled') AND state <> 'dead_letter'
    AND (chain_id, sender) > ($1, $2)
GROUP BY chain_id, sender ORDER BY chain_id, sender LIMIT $3;

-- lowest: the lowest live nonce of a lane
SELECT nonce FROM relay.submission
WHERE state NOT IN ('completed', 'failed', 'superseded', 'cancelled') AND state <> 'dead_letter'
    AND chain_id = $1 AND sender = $2
ORDER BY nonce LIMIT 1;

-- lane_rows: what is open in a lane
SELECT {record} FROM relay.submission
WHERE state NOT IN ('completed', 'failed', 'superseded', 'cancelled') AND chain_id = $1 AND sender = $2
ORDER BY nonce, id LIMIT $3;

-- listing: the rows of a state, latest change first
SELECT {record} FROM relay.submission
WHERE state = $1 AND (since_ms, id) < ($2, $3)
ORDER BY since_ms DESC, id DESC LIMIT $4;

-- attempts: of a submission
SELECT id, submission, node, fence, actor, at_ms, answered_ms, taken, verdict, text
FROM relay.attempt WHERE submission = $1 ORDER BY id;

-- receipts: of a submission
SELECT submission, block_number, block_hash, status, node, at_ms FROM relay.receipt WHERE submission = $1 ORDER BY id;

-- history: of a submission
SELECT {event} FROM relay.event WHERE submission = $1 ORDER BY version;

-- latest_changes: the newest events, with the records as they are now
SELECT {event}, {record} FROM relay.event JOIN relay.submission ON submission.id = event.submission
ORDER BY event.id DESC LIMIT $1;

-- changes_since: a page of the events behind one
SELECT {event}, {record} FROM relay.event JOIN relay.submission ON submission.id = event.submission
WHERE event.id > $1 ORDER BY event.id LIMIT $2;

-- changes_of: these events
SELECT {event}, {record} FROM relay.event JOIN relay.submission ON submission.id = event.submission
WHERE event.id = ANY ($1::bigint[]) ORDER BY event.id;

-- keys: that are bound to a submission
SELECT key, first_ms FROM relay.idempotency WHERE submission = $1 ORDER BY first_ms, key;

-- open_counts: by state and reason
SELECT state, reason, count(*), min(since_ms) FROM relay.submission
WHERE state IN ('queued', 'sealed', 'sent', 'pending', 'mined', 'dead_letter')
GROUP BY state, reason;

-- outbox_counts: the time, what waits, since when, and what is dead
SELECT
    relay.now_ms(),
    (SELECT count(*) FROM relay.outbox WHERE delivery = 'waiting'),
    (SELECT event.at_ms FROM relay.outbox JOIN relay.event ON event.id = outbox.event
        WHERE outbox.delivery = 'waiting' ORDER BY outbox.event LIMIT 1),
    (SELECT count(*) FROM relay.outbox WHERE delivery = 'dead');

-- lane: what an operator set last
SELECT chain_id, sender, paused, version, detail, actor, at_ms
FROM relay.lane WHERE chain_id = $1 AND sender = $2 ORDER BY version DESC LIMIT 1;

-- paused: every lane whose last setting is a pause
SELECT chain_id, sender, paused, version, detail, actor, at_ms FROM relay.lane
WHERE paused AND NOT EXISTS (
    SELECT 1 FROM relay.lane AS later
    WHERE later.chain_id = lane.chain_id AND later.sender = lane.sender AND later.version > lane.version
)
ORDER BY chain_id, sender;

-- lane_history: everything an operator set
SELECT chain_id, sender, paused, version, detail, actor, at_ms
FROM relay.lane WHERE chain_id = $1 AND sender = $2 ORDER BY version;

-- set_lane: the next setting, if the last one is the one that was seen
INSERT INTO relay.lane (chain_id, sender, paused, version, detail, actor, at_ms)
SELECT $1, $2, $3, $4::bigint + 1, $5, $6, relay.now_ms()
WHERE $4 = (SELECT coalesce(max(version), 0) FROM relay.lane WHERE chain_id = $1 AND sender = $2)
ON CONFLICT DO NOTHING
RETURNING chain_id, sender, paused, version, detail, actor, at_ms;

-- take_notices: what is due for a receiver, held for a while, with the records as they are now
WITH clock AS MATERIALIZED (SELECT relay.now_ms() AS now),
taken AS (
    UPDATE relay.outbox SET due_ms = relay.now_ms() + $3, tries = tries + 1
    WHERE receiver = $1 AND event IN (
        SELECT due.event FROM relay.outbox AS due
        WHERE due.delivery = 'waiting' AND due.receiver = $1 AND due.due_ms <= (SELECT now FROM clock)
        ORDER BY due.due_ms, due.event LIMIT $2 FOR UPDATE SKIP LOCKED
    )
    RETURNING event, tries
)
SELECT taken.tries, {event}, {record}
FROM taken JOIN relay.event ON event.id = taken.event JOIN relay.submission ON submission.id = event.submission
ORDER BY event.id;

-- mark_notice: how it went; late writers change only what they know to be delivered
UPDATE relay.outbox SET delivery = $3, due_ms = relay.now_ms() + $4, error = $5
WHERE event = $1 AND receiver = $2 AND (delivery = 'waiting' OR $3 = 'delivered');

-- bury_notices: what of the oldest has waited for too long; no more of what waits is read
WITH clock AS MATERIALIZED (SELECT relay.now_ms() AS now),
buried AS (
    UPDATE relay.outbox SET delivery = 'dead', error = $2
    WHERE (event, receiver) IN (
        SELECT old.event, old.receiver FROM (
            SELECT event, receiver FROM relay.outbox WHERE delivery = 'waiting'
            ORDER BY event LIMIT $3 FOR UPDATE SKIP LOCKED
        ) AS old JOIN relay.event ON event.id = old.event
        WHERE event.at_ms <= (SELECT now FROM clock) - $1::bigint
    )
    RETURNING event
)
SELECT count(*) FROM buried;

-- claim: become or stay the owner; one that reaches too far is from before the clock was set back
INSERT INTO relay.claim AS held (name, owner, fence, until_ms) VALUES ($1, $2, 1, relay.now_ms() + $3)
ON CONFLICT (name) DO UPDATE SET
    fence = held.fence + (held.owner <> excluded.owner)::integer, owner = excluded.owner, until_ms = excluded.until_ms
WHERE held.owner = excluded.owner OR held.until_ms <= relay.now_ms() OR held.until_ms > relay.now_ms() + 4 * $3
RETURNING name, owner, fence, until_ms;

-- claimed: whose it is
SELECT name, owner, fence, until_ms FROM relay.claim WHERE name = $1;

-- release: let others have it
UPDATE relay.claim SET until_ms = 0 WHERE name = $1 AND owner = $2;

-- note_count: the highest that an endpoint told
INSERT INTO relay.seen_count AS seen (endpoint, chain_id, sender, count) VALUES ($1, $2, $3, $4)
ON CONFLICT (endpoint, chain_id, sender) DO UPDATE SET count = greatest(seen.count, excluded.count)
RETURNING count;

-- prune: what ended long ago, may not land, is not its lane's highest nonce, and is told; the rest follows by itself
WITH pruned AS (
    DELETE FROM relay.submission WHERE id IN (
        SELECT old.id FROM relay.submission AS old
        WHERE old.state IN ('completed', 'failed', 'superseded', 'cancelled', 'dead_letter')
            AND old.since_ms <= relay.now_ms() - $1::bigint
            AND (old.state <> 'dead_letter' OR old.open_attempts = 0)
            AND EXISTS (
                SELECT 1 FROM relay.submission AS higher
                WHERE higher.chain_id = old.chain_id AND higher.sender = old.sender AND higher.nonce > old.nonce
            )
            AND NOT ($3 AND EXISTS (
                SELECT 1 FROM relay.event JOIN relay.outbox ON outbox.event = event.id
                WHERE event.submission = old.id AND outbox.delivery = 'waiting'
            ))
        LIMIT $2 FOR UPDATE OF old SKIP LOCKED
    )
    RETURNING id
)
SELECT count(*) FROM pruned;

-- write_health: can it be written?
INSERT INTO relay.health (one, at_ms) VALUES (1, relay.now_ms())
ON CONFLICT (one) DO UPDATE SET at_ms = excluded.at_ms;

-- prepare_schema: where the tables are, and which migrations were made
CREATE SCHEMA IF NOT EXISTS relay;

-- prepare_versions: as above
CREATE TABLE IF NOT EXISTS relay.migration (version integer PRIMARY KEY, at_ms bigint NOT NULL);

-- version: of the tables
SELECT coalesce(max(version), 0) FROM relay.migration;

-- migrated: one more
INSERT INTO relay.migration (version, at_ms) VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);

-- lock_migrations: one relay at a time; released at the end of the transaction
SELECT pg_advisory_xact_lock($1);
