-- The 43 shapes of query that ClickBench measures, for the table of hits_table.sql: scans with few
-- and many groups, distinct counts, patterns in text, the first ten by an order, reports of one site.
--
-- Queries are numbered in the order in which they stand here.  Orders are total, except that of the
-- eighteenth, which has none.  {user}, {page}, {referer} and {often} are filled in by hits.py.

-- counts, sums and extremes of the whole table
SELECT count(*) FROM hits;

SELECT count(*) FROM hits WHERE adv_engine_id <> 0;

SELECT sum(adv_engine_id), count(*), avg(resolution_width) FROM hits;

SELECT avg(user_id) FROM hits;

SELECT count(DISTINCT user_id) FROM hits;

SELECT count(DISTINCT search_phrase) FROM hits;

SELECT min(event_date), max(event_date) FROM hits;

-- groups, and distinct counts in them
SELECT adv_engine_id, count(*) FROM hits WHERE adv_engine_id <> 0
GROUP BY adv_engine_id ORDER BY count(*) DESC, adv_engine_id;

SELECT region_id, count(DISTINCT user_id) AS users FROM hits
GROUP BY region_id ORDER BY users DESC, region_id LIMIT 10;

SELECT
	region_id, sum(adv_engine_id), count(*) AS views, avg(resolution_width),
	count(DISTINCT user_id)
FROM hits GROUP BY region_id ORDER BY views DESC, region_id LIMIT 10;

SELECT mobile_phone_model, count(DISTINCT user_id) AS users FROM hits
WHERE mobile_phone_model <> '' GROUP BY mobile_phone_model
ORDER BY users DESC, mobile_phone_model LIMIT 10;

SELECT mobile_phone, mobile_phone_model, count(DISTINCT user_id) AS users FROM hits
WHERE mobile_phone_model <> '' GROUP BY mobile_phone, mobile_phone_model
ORDER BY users DESC, mobile_phone, mobile_phone_model LIMIT 10;

SELECT search_phrase, count(*) AS views FROM hits WHERE search_phrase <> ''
GROUP BY search_phrase ORDER BY views DESC, search_phrase LIMIT 10;

SELECT search_phrase, count(DISTINCT user_id) AS users FROM hits WHERE search_phrase <> ''
GROUP BY search_phrase ORDER BY users DESC, search_phrase LIMIT 10;

SELECT search_engine_id, search_phrase, count(*) AS views FROM hits WHERE search_phrase <> ''
GROUP BY search_engine_id, search_phrase
ORDER BY views DESC, search_engine_id, search_phrase LIMIT 10;

-- very many groups
SELECT user_id, count(*) AS views FROM hits GROUP BY user_id ORDER BY views DESC, user_id LIMIT 10;

SELECT user_id, search_phrase, count(*) AS views FROM hits
GROUP BY user_id, search_phrase ORDER BY views DESC, user_id, search_phrase LIMIT 10;

SELECT user_id, search_phrase, count(*) FROM hits GROUP BY user_id, search_phrase LIMIT 10;

SELECT
	user_id, extract(minute FROM event_time) AS minute, search_phrase, count(*) AS views
FROM hits GROUP BY user_id, minute, search_phrase
ORDER BY views DESC, user_id, minute, search_phrase LIMIT 10;

-- few rows: by a value, by a pattern, the first ones by an order
SELECT user_id FROM hits WHERE user_id = {user};

SELECT count(*) FROM hits WHERE url LIKE '%orion%';

SELECT search_phrase, min(url), count(*) AS views FROM hits
WHERE url LIKE '%orion%' AND search_phrase <> ''
GROUP BY search_phrase ORDER BY views DESC, search_phrase LIMIT 10;

SELECT
	search_phrase, min(url), min(title), count(*) AS views, count(DISTINCT user_id)
FROM hits
WHERE title LIKE '%Orion%' AND url NOT LIKE '%.orion.%' AND search_phrase <> ''
GROUP BY search_phrase ORDER BY views DESC, search_phrase LIMIT 10;

SELECT * FROM hits WHERE url LIKE '%orion%' ORDER BY event_time, watch_id LIMIT 10;

SELECT search_phrase FROM hits WHERE search_phrase <> '' ORDER BY event_time, watch_id LIMIT 10;

SELECT search_phrase FROM hits WHERE search_phrase <> '' ORDER BY search_phrase LIMIT 10;

SELECT search_phrase FROM hits WHERE search_phrase <> ''
ORDER BY event_time, search_phrase LIMIT 10;

-- computing with each row
SELECT counter_id, avg(length(url)) AS bytes, count(*) FROM hits WHERE url <> ''
GROUP BY counter_id HAVING count(*) > {often} ORDER BY bytes DESC, counter_id LIMIT 25;

SELECT
	regexp_replace(referer, '^https?://(?:www\.)?([^/]+)/.*$', '\1') AS host,
	avg(length(referer)) AS bytes, count(*), min(referer)
FROM hits WHERE referer <> ''
GROUP BY host HAVING count(*) > {often} ORDER BY bytes DESC, host LIMIT 25;

SELECT {sums} FROM hits;

-- groups by several columns, with several aggregates
SELECT
	search_engine_id, client_ip, count(*) AS views, sum(is_refresh), avg(resolution_width)
FROM hits WHERE search_phrase <> '' GROUP BY search_engine_id, client_ip
ORDER BY views DESC, search_engine_id, client_ip LIMIT 10;

SELECT watch_id, client_ip, count(*) AS views, sum(is_refresh), avg(resolution_width)
FROM hits WHERE search_phrase <> '' GROUP BY watch_id, client_ip
ORDER BY views DESC, watch_id, client_ip LIMIT 10;

SELECT watch_id, client_ip, count(*) AS views, sum(is_refresh), avg(resolution_width)
FROM hits GROUP BY watch_id, client_ip ORDER BY views DESC, watch_id, client_ip LIMIT 10;

SELECT url, count(*) AS views FROM hits GROUP BY url ORDER BY views DESC, url LIMIT 10;

SELECT 1 AS one, url, count(*) AS views FROM hits
GROUP BY one, url ORDER BY views DESC, url LIMIT 10;

SELECT client_ip, client_ip - 1, client_ip - 2, client_ip - 3, count(*) AS views FROM hits
GROUP BY client_ip, client_ip - 1, client_ip - 2, client_ip - 3
ORDER BY views DESC, client_ip LIMIT 10;

-- reports about one site
SELECT url, count(*) AS views FROM hits
WHERE
	counter_id = 79 AND event_date BETWEEN '2026-03-01' AND '2026-03-31'
	AND dont_count_hits = 0 AND is_refresh = 0 AND url <> ''
GROUP BY url ORDER BY views DESC, url LIMIT 10;

SELECT title, count(*) AS views FROM hits
WHERE
	counter_id = 79 AND event_date BETWEEN '2026-03-01' AND '2026-03-31'
	AND dont_count_hits = 0 AND is_refresh = 0 AND title <> ''
GROUP BY title ORDER BY views DESC, title LIMIT 10;

SELECT url, count(*) AS views FROM hits
WHERE
	counter_id = 79 AND event_date BETWEEN '2026-03-01' AND '2026-03-31'
	AND is_refresh = 0 AND is_link <> 0 AND is_download = 0
GROUP BY url ORDER BY views DESC, url LIMIT 10 OFFSET 1000;

SELECT
	traffic_source_id, search_engine_id, adv_engine_id,
	CASE WHEN search_engine_id = 0 AND adv_engine_id = 0 THEN referer ELSE '' END AS source,
	url AS target, count(*) AS views
FROM hits
WHERE
	counter_id = 79 AND event_date BETWEEN '2026-03-01' AND '2026-03-31' AND is_refresh = 0
GROUP BY traffic_source_id, search_engine_id, adv_engine_id, source, target
ORDER BY views DESC, traffic_source_id, search_engine_id, adv_engine_id, source, target
LIMIT 10 OFFSET 1000;

SELECT url_hash, event_date, count(*) AS views FROM hits
WHERE
	counter_id = 79 AND event_date BETWEEN '2026-03-01' AND '2026-03-31' AND is_refresh = 0
	AND traffic_source_id IN (-1, 6) AND referer_hash = {referer}
GROUP BY url_hash, event_date ORDER BY views DESC, url_hash, event_date LIMIT 10 OFFSET 100;

SELECT window_client_width, window_client_height, count(*) AS views FROM hits
WHERE
	counter_id = 79 AND event_date BETWEEN '2026-03-01' AND '2026-03-31' AND is_refresh = 0
	AND dont_count_hits = 0 AND url_hash = {page}
GROUP BY window_client_width, window_client_height
ORDER BY views DESC, window_client_width, window_client_height LIMIT 10 OFFSET 100;

SELECT date_trunc('minute', event_time) AS minute, count(*) AS views FROM hits
WHERE
	counter_id = 79 AND event_date BETWEEN '2026-03-14' AND '2026-03-15' AND is_refresh = 0
	AND dont_count_hits = 0
GROUP BY minute ORDER BY minute LIMIT 10 OFFSET 1000;
