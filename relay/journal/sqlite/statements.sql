-- Statements of the SQLite store. {record} and {event} are the columns of `records.Record` and `records.Event`.
-- :now is the database's own time, read under the write lock of the transaction.

-- now: the database's clock
SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER);

-- holder: whose an idempotency key is, and how long it has been
SELECT {record}, idempotency.first_ms
FROM idempotency JOIN submission ON submission.id = idempotency.submission
WHERE idempotency.chain_id = :chain_id AND idempotency.sender = :sender AND idempotency.key = :key;

-- admit: a new submission, nothing if it is there already
INSERT INTO submission (
    chain_id, sender, nonce, hash, method, mode, admitted_ms, state, detail, version, fence, since_ms
)
VALUES (:chain_id, :sender, :nonce, :hash, :method, :mode, :now, 'queued', '', 1, 0, :now)
ON CONFLICT (hash, chain_id) DO NOTHING
RETURNING {record};

-- keep_payload: the bytes of a new submission
INSERT INTO payload (submission, raw, method, params) VALUES (?, ?, ?, ?);

-- bind_key: a key to its submission; a key that is bound elsewhere was released
INSERT INTO idempotency (chain_id, sender, key, submission, first_ms)
VALUES (:chain_id, :sender, :key, :submission, :now)
ON CONFLICT (chain_id, sender, key) DO UPDATE SET submission = excluded.submission, first_ms = excluded.first_ms;

-- seal: to SEALED, and one more open attempt
UPDATE submission SET
    state = 'sealed',
    reason = :reason,
    detail = :detail,
    version = version + 1,
    fence = max(fence, :fence),
    tries = tries + 1,
    attempts = attempts + 1,
    open_attempts = open_attempts + 1,
    since_ms = CASE WHEN state = 'sealed' THEN since_ms ELSE :now END
WHERE id = :submission AND version = :version AND state = :origin AND (:fence = 0 OR fence <= :fence)
RETURNING {record};

-- decide: a decision, if nothing is against it
UPDATE submission SET
    state = :target,
    reason = :reason,
    detail = :detail,
    other_hash = coalesce(:other_hash, other_hash),
    mode = coalesce(:mode, mode),
    version = version + 1,
    fence = max(fence, :fence),
    tries = CASE WHEN :renews THEN 0 ELSE tries END,
    since_ms = CASE WHEN state = :target THEN since_ms ELSE :now END
WHERE id = :submission AND version = :version AND state = :origin AND (:fence = 0 OR fence <= :fence)
    AND CASE :guard
        WHEN 'none' THEN 1
        WHEN 'unsent' THEN attempts = 0
        WHEN 'certain' THEN open_attempts = 0
        WHEN 'attested' THEN open_attempts = 0 OR :attested
    END
RETURNING {record};

-- tell_history: the event of a change
INSERT INTO event (submission, origin, state, reason, detail, actor, fence, version, at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- put_out: an event into the outbox, for one receiver
INSERT INTO outbox (event, receiver, due_ms) VALUES (?, ?, ?);

-- begin_attempt: bytes are about to leave
INSERT INTO attempt (submission, node, fence, actor, at_ms) VALUES (?, ?, ?, ?, ?);

-- count_attempt: one more that is open, in the same turn
UPDATE submission SET attempts = attempts + 1, open_attempts = open_attempts + 1 WHERE id = ?;

-- answer: what came of an attempt, once
UPDATE attempt SET answered_ms = ?, taken = ?, verdict = ?, text = ? WHERE id = ? AND taken IS NULL;

-- close_attempt: it is proven not to have been taken
UPDATE submission SET open_attempts = open_attempts - 1
WHERE id = (SELECT attempt.submission FROM attempt WHERE attempt.id = ?);

-- see_receipt: once for each block
INSERT INTO receipt (submission, block_number, block_hash, status, node, at_ms)
SELECT ?1, ?2, ?3, ?4, ?5, ?6 FROM submission WHERE id = ?1
ON CONFLICT (submission, block_hash) DO NOTHING;

-- by_id: one record
SELECT {record} FROM submission WHERE id = ?;

-- by_hash: the record of a transaction, on whatever chain where none is named
SELECT {record} FROM submission WHERE hash = ? AND chain_id = coalesce(?, chain_id) ORDER BY id DESC LIMIT 1;

-- payload: what is sent
SELECT raw, method, params FROM payload WHERE submission = ?;

-- unfinished: a page of open rows in the order of the lanes; by that index, or each page would sort all of them
SELECT {record} FROM submission INDEXED BY submission_open
WHERE state NOT IN ('completed', 'failed', 'superseded', 'cancelled')
    AND (chain_id, sender, nonce, id) > (:chain_id, :sender, :nonce, :id)
    AND state IN (SELECT value FROM json_each(:states))
ORDER BY chain_id, sender, nonce, id LIMIT :limit;

-- outstanding: a page of lanes with live rows
SELECT chain_id, sender, min(nonce), count(*), min(admitted_ms) FROM submission INDEXED BY submission_open
WHERE state NOT IN ('completed', 'failed', 'superseded', 'cancelled') AND state <> 'dead_letter'
    AND (chain_id, sender) > (:chain_id, :sender)
GROUP BY chain_id, sender ORDER BY chain_id, sender LIMIT :limit;

-- lowest: the lowest live nonce of a lane; a lane may have ended many
SELECT nonce FROM submission INDEXED BY submission_open
WHERE state NOT IN ('completed', 'failed', 'superseded', 'cancelled') AND state <> 'dead_letter'
    AND chain_id = ? AND sender = ?
ORDER BY nonce LIMIT 1;

-- lane_rows: what is open in a lane
SELECT {record} FROM submission INDEXED BY submission_open
WHERE state NOT IN ('completed', 'failed', 'superseded', 'cancelled') AND chain_id = ? AND sender = ?
ORDER BY nonce, id LIMIT ?;

-- listing: the rows of a state, latest change first
SELECT {record} FROM submission
WHERE state = ? AND (since_ms, id) < (?, ?)
ORDER BY since_ms DESC, id DESC LIMIT ?;

-- attempts: of a submission
SELECT id, submission, node, fence, actor, at_ms, answered_ms, taken, verdict, text
FROM attempt WHERE submission = ? ORDER BY id;

-- receipts: of a submission
SELECT submission, block_number, block_hash, status, node, at_ms FROM receipt WHERE submission = ? ORDER BY id;

-- history: of a submission
SELECT {event} FROM event WHERE submission = ? ORDER BY id;

-- latest_changes: the newest events, with the records as they are now
SELECT {event}, {record} FROM event JOIN submission ON submission.id = event.submission
ORDER BY event.id DESC LIMIT ?;

-- changes_since: a page of the events behind one
SELECT {event}, {record} FROM event JOIN submission ON submission.id = event.submission
WHERE event.id > ? ORDER BY event.id LIMIT ?;

-- changes_of: these events
SELECT {event}, {record} FROM event JOIN submission ON submission.id = event.submission
WHERE event.id IN (SELECT value FROM json_each(?)) ORDER BY event.id;

-- keys: that are bound to a submission
SELECT key, first_ms FROM idempotency WHERE submission = ? ORDER BY first_ms, key;

-- open_counts: by state and reason
SELECT state, reason, count(*), min(since_ms) FROM submission
WHERE state IN ('queued', 'sealed', 'sent', 'pending', 'mined', 'dead_letter')
GROUP BY state, reason;

-- outbox_counts: what waits, since when, and what is dead
SELECT
    (SELECT count(*) FROM outbox WHERE delivery = 'waiting'),
    (SELECT event.at_ms FROM outbox JOIN event ON event.id = outbox.event
        WHERE outbox.delivery = 'waiting' ORDER BY outbox.event LIMIT 1),
    (SELECT count(*) FROM outbox WHERE delivery = 'dead');

-- lane: what an operator set last
SELECT chain_id, sender, paused, version, detail, actor, at_ms
FROM lane WHERE chain_id = ? AND sender = ? ORDER BY version DESC LIMIT 1;

-- paused: every lane whose last setting is a pause
SELECT chain_id, sender, paused, version, detail, actor, at_ms FROM lane
WHERE paused AND NOT EXISTS (
    SELECT 1 FROM lane AS later
    WHERE later.chain_id = lane.chain_id AND later.sender = lane.sender AND later.version > lane.version
)
ORDER BY chain_id, sender;

-- lane_history: everything an operator set
SELECT chain_id, sender, paused, version, detail, actor, at_ms
FROM lane WHERE chain_id = ? AND sender = ? ORDER BY version;

-- set_lane: the next setting, if the last one is the one that was seen
INSERT INTO lane (chain_id, sender, paused, version, detail, actor, at_ms)
SELECT :chain_id, :sender, :paused, :version + 1, :detail, :actor, :now
WHERE :version = (
    SELECT coalesce(max(version), 0) FROM lane WHERE chain_id = :chain_id AND sender = :sender
)
RETURNING chain_id, sender, paused, version, detail, actor, at_ms;

-- take_notices: what is due for a receiver, held for a while
UPDATE outbox SET due_ms = :now + :hold_ms, tries = tries + 1
WHERE receiver = :receiver AND event IN (
    SELECT due.event FROM outbox AS due
    WHERE due.delivery = 'waiting' AND due.receiver = :receiver AND due.due_ms <= :now
    ORDER BY due.due_ms, due.event LIMIT :limit
)
RETURNING event, tries;

-- notice: an event and the record as it is now
SELECT {event}, {record} FROM event JOIN submission ON submission.id = event.submission WHERE event.id = ?;

-- mark_notice: how it went; late writers change only what they know to be delivered
UPDATE outbox SET delivery = :delivery, due_ms = :now + :due_in_ms, error = :error
WHERE event = :event AND receiver = :receiver AND (delivery = 'waiting' OR :delivery = 'delivered');

-- bury_notices: what of the oldest has waited for too long; no more of what waits is read
UPDATE outbox SET delivery = 'dead', error = :error
WHERE (event, receiver) IN (
    SELECT old.event, old.receiver FROM (
        SELECT event, receiver FROM outbox WHERE delivery = 'waiting' ORDER BY event LIMIT :limit
    ) AS old JOIN event ON event.id = old.event
    WHERE event.at_ms <= :now - :older_than_ms
);

-- claim: become or stay the owner; one that reaches too far is from before the clock was set back
INSERT INTO claim (name, owner, fence, until_ms) VALUES (:name, :owner, 1, :now + :for_ms)
ON CONFLICT (name) DO UPDATE SET
    fence = claim.fence + (claim.owner <> excluded.owner), owner = excluded.owner, until_ms = excluded.until_ms
WHERE claim.owner = excluded.owner OR claim.until_ms <= :now OR claim.until_ms > :now + 4 * :for_ms
RETURNING name, owner, fence, until_ms;

-- claimed: whose it is
SELECT name, owner, fence, until_ms FROM claim WHERE name = ?;

-- release: let others have it
UPDATE claim SET until_ms = 0 WHERE name = ? AND owner = ?;

-- note_count: the highest that an endpoint told
INSERT INTO seen_count (endpoint, chain_id, sender, count) VALUES (?, ?, ?, ?)
ON CONFLICT (endpoint, chain_id, sender) DO UPDATE SET count = max(count, excluded.count)
RETURNING count;

-- prune: what ended long ago, may not land, is not its lane's highest nonce, and is told; the rest follows by itself
DELETE FROM submission WHERE id IN (
    SELECT old.id FROM submission AS old
    WHERE old.state IN ('completed', 'failed', 'superseded', 'cancelled', 'dead_letter')
        AND old.since_ms <= :now - :older_than_ms
        AND (old.state <> 'dead_letter' OR old.open_attempts = 0)
        AND EXISTS (
            SELECT 1 FROM submission AS higher
            WHERE higher.chain_id = old.chain_id AND higher.sender = old.sender AND higher.nonce > old.nonce
        )
        AND NOT (:tell AND EXISTS (
            SELECT 1 FROM event JOIN outbox ON outbox.event = event.id
            WHERE event.submission = old.id AND outbox.delivery = 'waiting'
        ))
    LIMIT :limit
);

-- write_health: can it be written?
INSERT INTO health (one, at_ms) VALUES (1, :now) ON CONFLICT (one) DO UPDATE SET at_ms = excluded.at_ms;

-- take_room: is there room for more? It is given back
INSERT INTO seen_count (endpoint, chain_id, sender, count) VALUES (:room, 0, x'', 0);
