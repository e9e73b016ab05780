-- Metrics of hosts, as monitoring keeps them: a row per host and moment, and what is known of each host.

CREATE TABLE hosts (
	host integer PRIMARY KEY,
	hostname text NOT NULL,
	region text NOT NULL,
	datacenter text NOT NULL,
	rack integer NOT NULL,
	os text NOT NULL,
	team text NOT NULL,
	service integer NOT NULL
);

CREATE TABLE cpu (
	host integer NOT NULL,
	time timestamptz NOT NULL,
	usage_user double precision NOT NULL,
	usage_system double precision NOT NULL,
	usage_idle double precision NOT NULL,
	usage_nice double precision NOT NULL,
	usage_iowait double precision NOT NULL,
	usage_irq double precision NOT NULL,
	usage_softirq double precision NOT NULL,
	usage_steal double precision NOT NULL,
	usage_guest double precision NOT NULL,
	usage_guest_nice double precision NOT NULL,
	PRIMARY KEY (host, time)
);
