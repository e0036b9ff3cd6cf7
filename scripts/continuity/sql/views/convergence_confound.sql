-- one model, method, input scale and step: error over that of S4 on the same random systems, and what each control adds
-- error [] geometric mean over random systems of rel_linf
-- ratio [] geometric mean over random systems of rel_linf / rel_linf of s4
-- low [] lower end of the 95 % t interval of ratio over random systems
-- high [] upper end of the 95 % t interval of ratio over random systems
-- factor [] ratio over the control before: s4_matched over s4 (speed), s6_fixed (products), s6 (varying step)
-- factor_low [] lower end of the 95 % t interval of factor over random systems
-- factor_high [] upper end of the 95 % t interval of factor over random systems
-- n_draws [] random systems averaged
WITH chain (model, before) AS (
    VALUES ('s4_matched', 's4'), ('s6_fixed', 's4_matched'), ('s6', 's6_fixed')
), ok AS (
    SELECT draw, model, method, scale, tau, ln(rel_linf) AS log_error FROM convergence WHERE rel_linf > 0
), paired AS (
    SELECT a.model, method, scale, tau, a.log_error, a.log_error - s4.log_error AS over_s4,
        a.log_error - b.log_error AS over_before
    FROM ok AS a
    JOIN ok AS s4 USING (draw, method, scale, tau)
    LEFT JOIN chain ON chain.model = a.model
    LEFT JOIN ok AS b ON b.model = chain.before AND (b.draw, b.method, b.scale, b.tau) = (a.draw, method, scale, tau)
    WHERE s4.model = 's4'
), cell AS (
    SELECT model, method, scale, tau, avg(log_error) AS log_error, avg(over_s4) AS over_s4,
        stddev_samp(over_s4) AS spread, avg(over_before) AS over_before, stddev_samp(over_before) AS spread_before,
        count(*) AS n_draws
    FROM paired GROUP BY ALL
)
SELECT model, method, scale, tau, exp(log_error) AS error, exp(over_s4) AS ratio,
    exp(over_s4 - t * spread / sqrt(n_draws)) AS low, exp(over_s4 + t * spread / sqrt(n_draws)) AS high,
    exp(over_before) AS factor, exp(over_before - t * spread_before / sqrt(n_draws)) AS factor_low,
    exp(over_before + t * spread_before / sqrt(n_draws)) AS factor_high, n_draws
FROM cell LEFT JOIN t_quantiles ON df = least(n_draws - 1, 1000)
ORDER BY ALL
