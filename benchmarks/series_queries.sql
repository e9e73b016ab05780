-- Queries of dashboards over the tables of series_tables.sql, those of the Time Series Benchmark Suite, and
-- every way in which people write "the last point of each host".  Orders are total.

-- [single-groupby-1-1-1] metrics, hosts, hours
SELECT
	date_trunc('minute', time) AS minute,
	max(usage_user)
FROM cpu
WHERE host = 44 AND time >= '2026-03-01 08:00:00' AND time < '2026-03-01 09:00:00'
GROUP BY minute ORDER BY minute;

-- [single-groupby-1-1-12]
SELECT
	date_trunc('minute', time) AS minute,
	max(usage_user)
FROM cpu
WHERE host = 44 AND time >= '2026-03-01 08:00:00' AND time < '2026-03-01 20:00:00'
GROUP BY minute ORDER BY minute;

-- [single-groupby-1-8-1]
SELECT
	date_trunc('minute', time) AS minute,
	max(usage_user)
FROM cpu
WHERE
	host IN (3, 7, 11, 19, 23, 31, 37, 43)
	AND time >= '2026-03-01 08:00:00' AND time < '2026-03-01 09:00:00'
GROUP BY minute ORDER BY minute;

-- [single-groupby-5-1-1]
SELECT
	date_trunc('minute', time) AS minute,
	max(usage_user), max(usage_system), max(usage_idle), max(usage_nice),
	max(usage_iowait)
FROM cpu
WHERE host = 44 AND time >= '2026-03-01 08:00:00' AND time < '2026-03-01 09:00:00'
GROUP BY minute ORDER BY minute;

-- [single-groupby-5-1-12]
SELECT
	date_trunc('minute', time) AS minute,
	max(usage_user), max(usage_system), max(usage_idle), max(usage_nice),
	max(usage_iowait)
FROM cpu
WHERE host = 44 AND time >= '2026-03-01 08:00:00' AND time < '2026-03-01 20:00:00'
GROUP BY minute ORDER BY minute;

-- [single-groupby-5-8-1]
SELECT
	date_trunc('minute', time) AS minute,
	max(usage_user), max(usage_system), max(usage_idle), max(usage_nice),
	max(usage_iowait)
FROM cpu
WHERE
	host IN (3, 7, 11, 19, 23, 31, 37, 43)
	AND time >= '2026-03-01 08:00:00' AND time < '2026-03-01 09:00:00'
GROUP BY minute ORDER BY minute;

-- [cpu-max-all-1] one host, or eight
SELECT
	date_trunc('hour', time) AS hour,
	max(usage_user), max(usage_system), max(usage_idle), max(usage_nice),
	max(usage_iowait), max(usage_irq), max(usage_softirq), max(usage_steal),
	max(usage_guest), max(usage_guest_nice)
FROM cpu
WHERE host = 44 AND time >= '2026-03-01 08:00:00' AND time < '2026-03-01 16:00:00'
GROUP BY hour ORDER BY hour;

-- [cpu-max-all-8]
SELECT
	date_trunc('hour', time) AS hour,
	max(usage_user), max(usage_system), max(usage_idle), max(usage_nice),
	max(usage_iowait), max(usage_irq), max(usage_softirq), max(usage_steal),
	max(usage_guest), max(usage_guest_nice)
FROM cpu
WHERE
	host IN (3, 7, 11, 19, 23, 31, 37, 43)
	AND time >= '2026-03-01 08:00:00' AND time < '2026-03-01 16:00:00'
GROUP BY hour ORDER BY hour;

-- [double-groupby-1] of all hosts, by hour
SELECT
	date_trunc('hour', time) AS hour, host,
	avg(usage_user)
FROM cpu
WHERE time >= '2026-03-01 08:00:00' AND time < '2026-03-01 20:00:00'
GROUP BY hour, host ORDER BY hour, host;

-- [double-groupby-5]
SELECT
	date_trunc('hour', time) AS hour, host,
	avg(usage_user), avg(usage_system), avg(usage_idle), avg(usage_nice),
	avg(usage_iowait)
FROM cpu
WHERE time >= '2026-03-01 08:00:00' AND time < '2026-03-01 20:00:00'
GROUP BY hour, host ORDER BY hour, host;

-- [double-groupby-all]
SELECT
	date_trunc('hour', time) AS hour, host,
	avg(usage_user), avg(usage_system), avg(usage_idle), avg(usage_nice),
	avg(usage_iowait), avg(usage_irq), avg(usage_softirq), avg(usage_steal),
	avg(usage_guest), avg(usage_guest_nice)
FROM cpu
WHERE time >= '2026-03-01 08:00:00' AND time < '2026-03-01 20:00:00'
GROUP BY hour, host ORDER BY hour, host;

-- [double-groupby-joined] ... with their names
WITH averages AS (
	SELECT date_trunc('hour', time) AS hour, host, avg(usage_user) AS mean_user
	FROM cpu
	WHERE time >= '2026-03-01 08:00:00' AND time < '2026-03-01 20:00:00'
	GROUP BY hour, host
)
SELECT hour, hostname, mean_user
FROM averages JOIN hosts USING (host) ORDER BY hour, hostname;

-- [high-cpu-1]
SELECT * FROM cpu
WHERE
	usage_user > 90.0 AND host = 44
	AND time >= '2026-03-01 08:00:00' AND time < '2026-03-01 20:00:00'
ORDER BY time;

-- [high-cpu-all]
SELECT * FROM cpu
WHERE
	usage_user > 90.0
	AND time >= '2026-03-01 08:00:00' AND time < '2026-03-01 20:00:00'
ORDER BY time, host;

-- [groupby-orderby-limit]
SELECT date_trunc('minute', time) AS minute, max(usage_user)
FROM cpu WHERE time < '2026-03-01 20:00:00'
GROUP BY minute ORDER BY minute DESC LIMIT 5;

-- [last-lateral] the last point of each host, in all its forms
SELECT h.hostname, c.*
FROM
	hosts AS h,
	LATERAL (SELECT * FROM cpu WHERE cpu.host = h.host ORDER BY time DESC LIMIT 1) AS c
ORDER BY c.host;

-- [last-lateral-left]
SELECT h.hostname, c.time, c.usage_user, c.usage_system
FROM
	hosts AS h
	LEFT JOIN LATERAL (
		SELECT time, usage_user, usage_system FROM cpu
		WHERE cpu.host = h.host ORDER BY time DESC LIMIT 1
	) AS c ON true
ORDER BY h.hostname;

-- [last-lateral-region]
SELECT h.hostname, c.*
FROM
	hosts AS h
	CROSS JOIN LATERAL (
		SELECT * FROM cpu WHERE cpu.host = h.host ORDER BY time DESC LIMIT 1
	) AS c
WHERE h.region = 'eu-west-1' ORDER BY c.host;

-- [last-distinct-on]
SELECT DISTINCT ON (host) * FROM cpu ORDER BY host, time DESC;

-- [last-distinct-on-joined]
SELECT DISTINCT ON (h.hostname) h.hostname, c.time, c.usage_user, c.usage_idle
FROM hosts AS h JOIN cpu AS c ON c.host = h.host
ORDER BY h.hostname, c.time DESC;

-- [last-row-number]
SELECT host, time, usage_user, usage_system
FROM (
	SELECT *, row_number() OVER (PARTITION BY host ORDER BY time DESC) AS place FROM cpu
) AS c
WHERE place = 1 ORDER BY host;

-- [last-three-row-number]
SELECT host, time, place, usage_user
FROM (
	SELECT *, row_number() OVER (PARTITION BY host ORDER BY time DESC) AS place FROM cpu
) AS c
WHERE place <= 3 ORDER BY host, place;

-- [last-sub-select]
SELECT
	h.host, h.hostname,
	(SELECT usage_user FROM cpu WHERE cpu.host = h.host ORDER BY time DESC LIMIT 1) AS usage_user
FROM hosts AS h ORDER BY h.host;

-- [last-max-sub-select]
SELECT c.* FROM cpu AS c
WHERE c.time = (SELECT max(time) FROM cpu WHERE cpu.host = c.host) ORDER BY c.host;

-- [last-max-join]
SELECT c.*
FROM
	cpu AS c
	JOIN (SELECT host, max(time) AS time FROM cpu GROUP BY host) AS last
		ON c.host = last.host AND c.time = last.time
ORDER BY c.host;

-- [last-max-in]
SELECT * FROM cpu
WHERE (host, time) IN (SELECT host, max(time) FROM cpu GROUP BY host) ORDER BY host;
