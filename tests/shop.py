"""A small schema that many tests share: every kind of table, NULLs wherever they are allowed.

users     distributed by user_id (integer), primary key
events    distributed by user_id, colocated with users; bigint id, jsonb, arrays, timestamps
visits    distributed by visit_id (bigint): not colocated with anything
notes     distributed by topic (text), some keys NULL, no primary key
countries, kinds    reference tables
plans     a local table of the coordinator
"""

from __future__ import annotations

from tests.pair import Pair

USERS, EVENTS, VISITS, NOTES = 200, 2000, 600, 100

TABLES = """
CREATE TABLE countries (code text PRIMARY KEY, name text NOT NULL, continent text);
CREATE TABLE kinds (kind_id integer PRIMARY KEY, kind text UNIQUE, weight numeric(6, 2));
CREATE TABLE plans (plan_id integer PRIMARY KEY, plan text, price numeric(10, 2));
CREATE TABLE users (
    user_id integer PRIMARY KEY, name text NOT NULL, country text, plan_id integer, age integer,
    balance numeric(12, 2), born date
);
CREATE TABLE events (
    event_id bigint, user_id integer, kind_id integer, amount numeric(12, 2), score float8,
    at timestamptz, tags text[], payload jsonb, ok boolean, PRIMARY KEY (user_id, event_id)
);
CREATE TABLE visits (
    visit_id bigint PRIMARY KEY, user_id integer, page text, seconds integer
);
CREATE TABLE notes (topic text, stars integer, body text);
"""

ROWS = f"""
INSERT INTO countries VALUES
    ('AT', 'Austria', 'Europe'), ('BR', 'Brazil', 'America'), ('CH', 'Switzerland', 'Europe'),
    ('IN', 'India', 'Asia'), ('JP', 'Japan', 'Asia'), ('NZ', 'New Zealand', NULL);
INSERT INTO kinds SELECT g, 'kind ' || g, nullif(g, 3) * 1.5 FROM generate_series(1, 6) AS g;
INSERT INTO plans VALUES (1, 'free', 0), (2, 'basic', 9.90), (3, 'pro', 49.00), (4, 'gone', NULL);
INSERT INTO users
    SELECT g, 'user ' || g, (ARRAY['AT', 'BR', 'CH', 'IN', 'JP', 'XX', NULL])[g % 7 + 1],
        nullif(g % 5, 4), 18 + g * 7 % 60, nullif((g * 37 % 1000) / 10.0, 5.5),
        DATE '1960-01-01' + g * 97 % 16000
    FROM generate_series(1, {USERS}) AS g;
INSERT INTO events
    SELECT g, g * 13 % 220 + 1, nullif(g % 8, 7), g * 7919 % 10000 / 100.0,
        nullif(g % 17, 4) / 4.0::float8, TIMESTAMPTZ '2024-01-01 00:00+00' + g * INTERVAL '37 minutes',
        CASE WHEN g % 3 = 0 THEN ARRAY['t' || g % 5, 'x'] WHEN g % 3 = 1 THEN '{{}}' END,
        jsonb_build_object('n', g % 10, 's', 'v' || g % 4), g % 11 <> 0
    FROM generate_series(1, {EVENTS}) AS g;
INSERT INTO visits
    SELECT g * 1000003, nullif(g * 31 % 211, 0), '/' || g % 12, g * 17 % 300
    FROM generate_series(1, {VISITS}) AS g;
INSERT INTO notes
    SELECT nullif('topic ' || g % 23, 'topic 7'), g % 5, repeat('n', g % 40)
    FROM generate_series(1, {NOTES}) AS g;
"""


def create(pair: Pair) -> None:
    pair.execute(TABLES)
    pair.reference("countries")
    pair.reference("kinds")
    pair.distribute("users", "user_id")
    pair.distribute("events", "user_id", colocate_with="users")
    pair.distribute("visits", "visit_id")
    pair.distribute("notes", "topic")
    pair.execute(ROWS)
    pair.execute("ANALYZE countries, kinds, plans, users, events, visits, notes")
