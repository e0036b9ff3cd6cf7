-- one result table: what its runs took
-- table [] result table
-- n_runs [] runs
-- seconds [s] wall-clock seconds of all its runs together
-- slowest [s] wall-clock seconds of its slowest run
-- sequences_per_s [1/s] training sequences read a second of training, median over its runs; NULL where nothing is trained
-- utilisation [] CPU seconds a wall-clock second, or the share of time that a GPU was seen at work, median over its runs
SELECT "table", count(*) AS n_runs, sum(seconds) AS seconds, max(seconds) AS slowest,
    median(sequences_per_s) AS sequences_per_s, median(utilisation) AS utilisation
FROM runs GROUP BY ALL
ORDER BY ALL
