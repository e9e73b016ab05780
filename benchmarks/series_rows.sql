-- Rows for the tables of series_tables.sql, by DuckDB: one day, each host every ten seconds, in order of time.
--
-- Before it: random.sql, and SET VARIABLE host_count = ....  A usage is a level that the host has for an
-- hour, high ones rarely, and noise around it, with one decimal.

SET VARIABLE regions = [
	'us-east-1', 'us-west-1', 'us-west-2', 'eu-west-1', 'eu-central-1', 'ap-southeast-1',
	'ap-southeast-2', 'ap-northeast-1', 'sa-east-1'
];

INSERT INTO hosts
SELECT
	host, 'host_' || host, region, region || ['a', 'b', 'c'][1 + skewed(host, 2, 3, 1)],
	skewed(host, 3, 100, 1), ['Ubuntu16.10', 'Ubuntu16.04LTS', 'Ubuntu15.10'][1 + skewed(host, 4, 3, 1)],
	['SF', 'NYC', 'LON', 'CHI'][1 + skewed(host, 5, 4, 1)], skewed(host, 6, 20, 1)
FROM (
	SELECT
		range AS host,
		getvariable('regions')[1 + skewed(range, 1, len(getvariable('regions')), 1)] AS region
	FROM range(getvariable('host_count'))
);

CREATE MACRO usage(number, use) AS round(
	greatest(least(
		100 * pow(uniform(number // (360 * getvariable('host_count')) * 100000
			+ number % getvariable('host_count'), use), 4)
		+ 20 * (uniform(number, use) - 0.5), 100), 0),
	1
);

INSERT INTO cpu
SELECT
	range % getvariable('host_count'),
	TIMESTAMP '2026-03-01 00:00:00' + to_seconds(range // getvariable('host_count') * 10),
	usage(range, 10), usage(range, 11), usage(range, 12), usage(range, 13), usage(range, 14),
	usage(range, 15), usage(range, 16), usage(range, 17), usage(range, 18), usage(range, 19)
FROM range(getvariable('host_count') * 8640)
ORDER BY range;
