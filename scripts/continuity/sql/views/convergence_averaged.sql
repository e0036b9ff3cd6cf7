-- one model and input scale: what averaging the input over each step brings, at the finest step
-- averaged_order [] order of convergence of the averaged rule, from the three finest steps
-- order_low [] lower end of the 95 % t interval of averaged_order over random systems
-- order_high [] upper end of the 95 % t interval of averaged_order over random systems
-- gain [] geometric mean over random systems of rel_linf with the input held (zoh) / with it averaged
-- low [] lower end of the 95 % t interval of gain over random systems
-- high [] upper end of the 95 % t interval of gain over random systems
-- n_draws [] random systems averaged
WITH cell AS (
    SELECT held.model, scale, avg(ln(held.rel_linf / averaged.rel_linf)) AS log_gain,
        stddev_samp(ln(held.rel_linf / averaged.rel_linf)) AS spread, count(*) AS n_draws
    FROM convergence AS held
    JOIN convergence AS averaged USING (draw, model, scale, tau)
    WHERE held.method = 'zoh' AND averaged.method = 'averaged' AND tau = (SELECT min(tau) FROM convergence)
        AND held.rel_linf > 0 AND averaged.rel_linf > 0
    GROUP BY ALL
)
SELECT cell.model, cell.scale, convergence_order AS averaged_order, rate.low AS order_low, rate.high AS order_high,
    exp(log_gain) AS gain, exp(log_gain - t * spread / sqrt(cell.n_draws)) AS low,
    exp(log_gain + t * spread / sqrt(cell.n_draws)) AS high, cell.n_draws
FROM cell
LEFT JOIN convergence_order AS rate ON rate.method = 'averaged' AND (rate.model, rate.scale) = (cell.model, cell.scale)
LEFT JOIN t_quantiles ON df = least(cell.n_draws - 1, 1000)
ORDER BY ALL
