-- one model, method, input scale and step: error over random systems
-- error [] geometric mean over random systems of rel_linf
-- low [] lower end of the 95 % t interval of error over random systems
-- high [] upper end of the 95 % t interval of error over random systems
-- n_draws [] random systems averaged
-- n_failed [] random systems without a number
WITH cell AS (
    SELECT model, method, scale, tau, avg(ln(rel_linf)) FILTER (rel_linf > 0) AS log_error,
        stddev_samp(ln(rel_linf)) FILTER (rel_linf > 0) AS spread, count(*) FILTER (rel_linf > 0) AS n_draws,
        count(*) FILTER (rel_linf IS NULL) AS n_failed
    FROM convergence GROUP BY ALL
)
SELECT model, method, scale, tau, exp(log_error) AS error, exp(log_error - t * spread / sqrt(n_draws)) AS low,
    exp(log_error + t * spread / sqrt(n_draws)) AS high, n_draws, n_failed
FROM cell LEFT JOIN t_quantiles ON df = least(n_draws - 1, 1000)
ORDER BY ALL
