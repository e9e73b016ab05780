-- The flights by month: those before July 2013 belong on the slow disk.
CREATE TABLE departures (
	time_hour timestamptz NOT NULL,
	tailnum text,
	origin text NOT NULL,
	dest text NOT NULL,
	dep_delay integer
);

INSERT INTO departures
SELECT time_hour, tailnum, origin, dest, dep_delay FROM flights ORDER BY time_hour;

SELECT strata.create_distributed_table('departures', 'tailnum', shard_count => 2, colocate_with => 'none',
	partition_by => 'time_hour', partition_interval => '1 month');

SELECT strata.set_tier_policy('departures', 'age',
	age => (now() - timestamptz '2013-07-01 00:00:00+00')::text);
