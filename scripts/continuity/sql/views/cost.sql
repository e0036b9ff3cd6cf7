-- one result table: what its runs took
-- table [] result table
-- n_runs [] runs
-- seconds [s] wall-clock seconds of all its runs together
-- slowest [s] wall-clock seconds of its slowest run
SELECT "table", count(*) AS n_runs, sum(seconds) AS seconds, max(seconds) AS slowest
FROM runs GROUP BY ALL
ORDER BY ALL
